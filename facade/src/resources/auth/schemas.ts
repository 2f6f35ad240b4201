import { Type } from "typebox";

const username = Type.String({ maxLength: 254 });
const recaptchaToken = Type.Optional(
  Type.String({ maxLength: 4096, description: "Required only where reCAPTCHA is set up." }),
);
export const RegisterBody = Type.Object({
  username: Type.String({ format: "email", maxLength: 254 }),
  password: Type.String({ minLength: 10, maxLength: 256 }),
  recaptchaToken,
});
export const VerifyEmailBody = Type.Object({ token: Type.String({ minLength: 1, maxLength: 512 }) });
export const ResendBody = Type.Object({ username: Type.String({ minLength: 1, maxLength: 254 }) });
export const LoginBody = Type.Object({ username, password: Type.String({ maxLength: 256 }), recaptchaToken });
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
