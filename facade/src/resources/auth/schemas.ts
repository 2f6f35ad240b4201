import { Type } from "typebox";
import { Id, Moment, NextCursor, NullableText, nullable } from "../../pipeline/validation/schema-parts.ts";

const username = Type.String({ maxLength: 254 });
const recaptchaToken = Type.Optional(
  Type.String({
    maxLength: 4096,
    description: "Required only where reCAPTCHA is set up. Each request needs a new one.",
  }),
);
const NewPassword = Type.String({
  minLength: 10,
  maxLength: 256,
  description: "One that is common or easy to guess is refused.",
});
const CurrentPassword = Type.String({ maxLength: 256 });
/** Of a second factor. */
const otpMeaning = "A code that your authenticator app shows, or a recovery code; each works once.";
export const Otp = Type.String({ minLength: 1, maxLength: 64, description: otpMeaning });
const MailedToken = Type.String({ minLength: 1, maxLength: 512 });
export const RegisterBody = Type.Object({
  username: Type.String({ format: "email", maxLength: 254 }),
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
/** What confirms the caller. */
export const ConfirmingPassword = Type.Optional({
  ...CurrentPassword,
  description: "Needed, but in an account without one: there a sign-in of the last 5 minutes stands for it.",
});
export const DeleteAccountBody = Type.Object({ password: ConfirmingPassword });
export const ResetPasswordBody = Type.Object({ token: MailedToken, password: NewPassword });
export const UsernameBody = Type.Object({ username: Type.String({ minLength: 1, maxLength: 254 }) });
export const LoginBody = Type.Object({
  username,
  password: CurrentPassword,
  recaptchaToken,
  otp: Type.Optional({ ...Otp, description: `Needed in an account with a second factor. ${otpMeaning}` }),
});
export const RefreshBody = Type.Object({ refresh_token: Type.String({ maxLength: 512 }) });
export const SessionTokens = Type.Object({
  success: Type.Boolean(),
  tokens: Type.Object({
    access_token: Type.String(),
    refresh_token: Type.String(),
    expires_in: Type.Integer({ description: "Seconds" }),
    refresh_expires_in: Type.Integer({ description: "Seconds" }),
  }),
});
export const SessionParams = Type.Object({ session_id: Type.String({ maxLength: 64 }) });
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
  provider: Type.String({ maxLength: 32, description: "`google`, `microsoft` or `github`." }),
});
export const SsoQuery = Type.Object({
  redirect_uri: Type.Optional(
    Type.String({
      maxLength: 2048,
      description:
        "Where the browser goes in the end: exactly one of the configured addresses, the first unless given.",
    }),
  ),
});
export const SsoCallbackQuery = Type.Object({
  state: Type.Optional(Type.String({ maxLength: 512 })),
  code: Type.Optional(Type.String({ maxLength: 8192 })),
  iss: Type.Optional(Type.String({ maxLength: 2048 })),
  error: Type.Optional(Type.String({ maxLength: 512 })),
});
export const Redirect = Type.Null({ description: "A redirect to the address in `Location`." });
