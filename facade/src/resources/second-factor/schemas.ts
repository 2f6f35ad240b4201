import { Type } from "typebox";
import { Otp, ConfirmingPassword as password } from "../auth/schemas.ts";

export const CreateSecondFactorBody = Type.Object({ password });
export const ConfirmSecondFactorBody = Type.Object({ otp: Otp });
export const ConfirmedBody = Type.Object({ password, otp: Otp });
export const SecondFactor = Type.Object({
  enabled: Type.Boolean(),
  recovery_codes_left: Type.Integer(),
});
export const NewSecondFactor = Type.Object({
  secret: Type.String({ description: "In base32, to be typed into an authenticator app." }),
  uri: Type.String({ description: "The same as an `otpauth:` address, to be shown as a QR code." }),
});
export const RecoveryCodes = Type.Object({
  recovery_codes: Type.Array(Type.String(), { description: "Each works once in place of a code. Shown only here." }),
});
