import { Type } from "typebox";
import { component } from "../../pipeline/validation/common-schemas.ts";
import { Otp, ConfirmingPassword as password } from "../auth/schemas.ts";

export const CreateSecondFactorBody = component("CreateSecondFactor", { password });
export const ConfirmSecondFactorBody = component("ConfirmSecondFactor", { otp: Otp });
export const ConfirmedBody = component("PasswordAndCode", { password, otp: Otp });
export const SecondFactor = component("SecondFactor", {
  enabled: Type.Boolean(),
  recovery_codes_left: Type.Integer(),
});
export const NewSecondFactor = component("NewSecondFactor", {
  secret: Type.String({ description: "In base32, to be typed into an authenticator app." }),
  uri: Type.String({ description: "The same as an `otpauth:` address, to be shown as a QR code." }),
});
export const RecoveryCodes = component("RecoveryCodes", {
  recovery_codes: Type.Array(Type.String(), { description: "Each works once in place of a code. Shown only here." }),
});
