import {
  choice,
  defineSettings,
  integer,
  SettingsError,
  type SettingValues,
  secret,
  text,
} from "@sandgate/kit/base/settings";
import { defaultOperatorUsername, passwordLength } from "./domain/users.ts";

export const identitySettings = defineSettings({
  data: text("SANDGATE_DATA", { default: "./data", doc: "Folder of this machine's data; mails are written under it" }),
  publicUrl: text("SANDGATE_PUBLIC_URL", {
    default: "http://127.0.0.1:8080",
    doc: "Address under which clients reach the API; the base of links in mails and the issuer of session tokens",
  }),
  registration: choice("SANDGATE_REGISTRATION", ["open", "closed"], {
    default: "open",
    doc: "Whether anybody may register an account",
  }),
  smtpUrl: secret("SANDGATE_SMTP_URL", {
    optional: true,
    doc: "SMTP server for mails (smtp[s]://user:password@host:port). Without it each mail is written to a file",
  }),
  mailFrom: text("SANDGATE_MAIL_FROM", { default: "Sandgate <sandgate@localhost>", doc: "Sender of mails" }),
  adminUsername: text("SANDGATE_ADMIN_USERNAME", {
    default: defaultOperatorUsername,
    doc: "User name of the operator account that the first start creates",
  }),
  adminPassword: secret("SANDGATE_ADMIN_PASSWORD", {
    optional: true,
    doc: "Password of that account. Without it a random one is made and shown once",
  }),
  maxApiTokens: integer("SANDGATE_USER_MAX_API_TOKENS", {
    default: 50,
    min: 0,
    doc: "API tokens a user may have, expired ones in the list included; 0 for no limit",
  }),
  apiTokenMaxDays: integer("SANDGATE_API_TOKEN_MAX_DAYS", {
    default: 0,
    min: 0,
    max: 36_500,
    doc: "Days that a new API token lasts at most, and unless it is made to expire earlier; 0 for no limit",
  }),
});

export type IdentitySettings = SettingValues<typeof identitySettings>;

/** Throws a SettingsError for invalid ones. The public address comes out normalized, without a slash at its end. */
export function parseIdentitySettings(settings: IdentitySettings): IdentitySettings {
  checkSmtpUrl(settings.smtpUrl);
  checkAdminPassword(settings.adminPassword);
  return { ...settings, publicUrl: parsePublicUrl(settings.publicUrl) };
}

function parsePublicUrl(text: string): string {
  const url = URL.parse(text);
  if (url?.protocol === "http:" || url?.protocol === "https:") return url.href.replace(/\/+$/, "");
  throw new SettingsError([`${identitySettings.publicUrl.name} must be an http or https address, not "${text}"`]);
}

function checkSmtpUrl(text: string | undefined): void {
  if (text === undefined || ["smtp:", "smtps:"].includes(URL.parse(text)?.protocol ?? "")) return;
  throw new SettingsError([`${identitySettings.smtpUrl.name} must be an smtp or smtps address`]);
}

function checkAdminPassword(password: string | undefined): void {
  const { min, max } = passwordLength;
  if (password === undefined || (password.length >= min && password.length <= max)) return;
  throw new SettingsError([`${identitySettings.adminPassword.name} must have ${min} to ${max} characters`]);
}
