import type { CredentialKind } from "@sandgate/kit/rpc/context";
import * as requests from "@sandgate/proto/identity/v1/identity";
import { Type } from "typebox";
import {
  component,
  Id,
  Moment,
  NextCursor,
  NullableMoment,
  NullableText,
  nullable,
} from "../../pipeline/validation/common-schemas.ts";
import { fieldSchema } from "../../pipeline/validation/field-schema.ts";
import { NullablePermissions, NullableRole } from "../api-tokens/schemas.ts";

const recaptchaToken = Type.Optional(
  fieldSchema(requests.SignInRequestSchema, "recaptcha_token", {
    description: "Required only where reCAPTCHA is set up. Each request needs a new one.",
  }),
);
const NewPassword = fieldSchema(requests.RegisterRequestSchema, "password", {
  description: "One that is common or easy to guess is refused.",
});
const CurrentPassword = fieldSchema(requests.SignInRequestSchema, "password");
const otpMeaning = "A code that your authenticator app shows, or a recovery code; each works once.";
export const Otp = fieldSchema(requests.SignInRequestSchema, "otp", { minLength: 1, description: otpMeaning });
const MailedToken = fieldSchema(requests.VerifyEmailRequestSchema, "token");
export const RegisterBody = component("Register", {
  username: fieldSchema(requests.RegisterRequestSchema, "username"),
  password: NewPassword,
  recaptchaToken,
});
export const VerifyEmailBody = component("VerifyEmail", {
  token: MailedToken,
  password: {
    ...NewPassword,
    description:
      "The account's password from now on, whatever it was registered with. One that is easy to guess is refused.",
  },
});
export const ChangePasswordBody = component("ChangePassword", {
  current_password: CurrentPassword,
  password: NewPassword,
  revoke_api_tokens: Type.Optional(
    Type.Boolean({ description: "Whether your API tokens are revoked too.", default: false }),
  ),
});
export const Account = component("Account", {
  id: Id,
  username: Type.String(),
  is_operator: Type.Boolean({ description: "Whether the account is an operator's." }),
  has_second_factor: Type.Boolean(),
  created_at: Moment,
  credential: Type.Unsafe<CredentialKind>({
    type: "string",
    enum: ["session", "api_token"],
    description: "What the request was made with.",
  }),
  workspace_id: nullable(
    Type.String({ description: "The workspace that the API token is limited to. Null: it has no such limit." }),
  ),
  role: NullableRole,
  permissions: NullablePermissions,
});
export const Identity = component("Identity", {
  id: Id,
  provider: Type.String({ description: "`google`, `microsoft` or `github`." }),
  username: Type.String({ description: "The address that the provider verified last." }),
  linked_at: Moment,
  last_used_at: NullableMoment,
});
export const IdentityList = component("IdentityList", { identities: Type.Array(Identity) });
export const IdentityParams = Type.Object({ identity_id: Type.String() });
export const PasswordReset = component("PasswordReset", {
  success: Type.Boolean(),
  identities: Type.Array(Identity, { description: "The accounts at providers that can still sign in to yours." }),
});
/** The password by which callers confirm who they are. */
export const ConfirmingPassword = Type.Optional({
  ...CurrentPassword,
  description: "Required if the account has a password. Otherwise you must have signed in within the last 5 minutes.",
});
export const DeleteAccountBody = component("DeleteAccount", { password: ConfirmingPassword });
export const ResetPasswordBody = component("ResetPassword", { token: MailedToken, password: NewPassword });
export const UsernameBody = component("Username", {
  username: fieldSchema(requests.ResendVerificationRequestSchema, "username"),
});
export const LoginBody = component(
  "Login",
  {
    username: fieldSchema(requests.SignInRequestSchema, "username"),
    password: CurrentPassword,
    recaptchaToken,
    otp: Type.Optional({ ...Otp, description: `Needed in an account with a second factor. ${otpMeaning}` }),
  },
  { username: "ada@example.com", password: "a long passphrase" },
);
export const RefreshBody = component("RefreshToken", {
  refresh_token: fieldSchema(requests.RefreshSessionRequestSchema, "refresh_token"),
});
export const SessionTokens = component("SessionTokens", {
  success: Type.Boolean(),
  tokens: Type.Object({
    access_token: Type.String(),
    refresh_token: Type.String(),
    expires_in: Type.Integer({ description: "Seconds" }),
    refresh_expires_in: Type.Integer({ description: "Seconds" }),
  }),
});
export const SessionParams = Type.Object({ session_id: Type.String() });
export const Session = component("Session", {
  id: Id,
  created_at: Moment,
  last_seen_at: Type.String({ format: "date-time", description: "When it was signed in or refreshed last." }),
  address: nullable(Type.String({ description: "The client's address then." })),
  user_agent: NullableText,
  current: Type.Boolean({ description: "Whether the request was made with it." }),
});
export const SessionList = component("SessionList", { sessions: Type.Array(Session), next_cursor: NextCursor });
export const SsoParams = Type.Object({
  provider: fieldSchema(requests.StartSsoRequestSchema, "provider", {
    description: "`google`, `microsoft` or `github`.",
  }),
});
export const SsoQuery = Type.Object({
  redirect_uri: Type.Optional(
    fieldSchema(requests.StartSsoRequestSchema, "redirect_uri", {
      description:
        "Where the browser goes in the end: exactly one of the configured addresses, the first unless given.",
    }),
  ),
});
export const SsoCallbackQuery = Type.Object({
  state: Type.Optional(fieldSchema(requests.FinishSsoRequestSchema, "state")),
  code: Type.Optional(fieldSchema(requests.FinishSsoRequestSchema, "code")),
  iss: Type.Optional(fieldSchema(requests.FinishSsoRequestSchema, "iss")),
  error: Type.Optional(fieldSchema(requests.FinishSsoRequestSchema, "error")),
});
export const Redirect = Type.Null({ description: "A redirect to the address in `Location`." });
