import * as requests from "@sandgate/proto/identity/v1/identity";
import { Type } from "typebox";
import { Id, Moment, NextCursor, NullableText, nullable } from "../../pipeline/validation/common-schemas.ts";
import { fieldSchema } from "../../pipeline/validation/field-schema.ts";

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
export const RegisterBody = Type.Object({
  username: fieldSchema(requests.RegisterRequestSchema, "username"),
  password: NewPassword,
  recaptchaToken,
});
export const VerifyEmailBody = Type.Object({
  token: MailedToken,
  password: Type.Optional({
    ...NewPassword,
    description: "Sets the account's password; needed with a link from POST /auth/resend-verification.",
  }),
});
export const ChangePasswordBody = Type.Object({ current_password: CurrentPassword, password: NewPassword });
/** The password by which callers confirm who they are. */
export const ConfirmingPassword = Type.Optional({
  ...CurrentPassword,
  description: "Required if the account has a password. Otherwise you must have signed in within the last 5 minutes.",
});
export const DeleteAccountBody = Type.Object({ password: ConfirmingPassword });
export const ResetPasswordBody = Type.Object({ token: MailedToken, password: NewPassword });
export const UsernameBody = Type.Object({
  username: fieldSchema(requests.ResendVerificationRequestSchema, "username"),
});
export const LoginBody = Type.Object({
  username: fieldSchema(requests.SignInRequestSchema, "username"),
  password: CurrentPassword,
  recaptchaToken,
  otp: Type.Optional({ ...Otp, description: `Needed in an account with a second factor. ${otpMeaning}` }),
});
export const RefreshBody = Type.Object({
  refresh_token: fieldSchema(requests.RefreshSessionRequestSchema, "refresh_token"),
});
export const SessionTokens = Type.Object({
  success: Type.Boolean(),
  tokens: Type.Object({
    access_token: Type.String(),
    refresh_token: Type.String(),
    expires_in: Type.Integer({ description: "Seconds" }),
    refresh_expires_in: Type.Integer({ description: "Seconds" }),
  }),
});
export const SessionParams = Type.Object({ session_id: fieldSchema(requests.EndSessionRequestSchema, "session_id") });
export const Session = Type.Object({
  id: Id,
  created_at: Moment,
  last_seen_at: Type.String({ format: "date-time", description: "When it was signed in or refreshed last." }),
  address: nullable(Type.String({ description: "The client's address then." })),
  user_agent: NullableText,
  current: Type.Boolean({ description: "Whether the request was made with it." }),
});
export const SessionList = Type.Object({ sessions: Type.Array(Session), next_cursor: NextCursor });
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
