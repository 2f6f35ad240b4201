import {
  choice,
  defineSettings,
  integer,
  list,
  SettingsError,
  type SettingValues,
  secret,
  text,
} from "@sandgate/kit/base/settings";
import { defaultOperatorUsername, passwordLength } from "./domain/users.ts";
import { parseSsoSettings, ssoSettings } from "./sso/settings.ts";
import type { MailLimits } from "./usecases/mail-budgets.ts";
import type { RecaptchaSettings } from "./usecases/recaptcha.ts";

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
  signInRateLimit: integer("SANDGATE_SIGNIN_RATE_LIMIT", {
    default: 10,
    doc: "Attempts a minute to sign in to an account from one address. 0: no limit",
  }),
  mailsPerHour: integer("SANDGATE_MAILS_PER_HOUR", {
    default: 1000,
    doc: "Mails an hour to all users together; a fifth is kept for those who have an account. 0: no limit",
  }),
  networkMailsPerHour: integer("SANDGATE_NETWORK_MAILS_PER_HOUR", {
    default: 30,
    doc: "Mails an hour that one address may cause; the networks around it may cause more. 0: no limit",
  }),
  mailboxMailsPerHour: integer("SANDGATE_MAILBOX_MAILS_PER_HOUR", {
    default: 5,
    doc: "Mails an hour to one mailbox, all its sub-addresses (ann+shop@…) together. 0: no limit",
  }),
  recaptchaSecret: secret("SANDGATE_RECAPTCHA_SECRET", {
    optional: true,
    doc: "Secret key of reCAPTCHA (v2 or v3). With it, registrations and sign-ins need a token; without, none is checked",
  }),
  recaptchaMinScore: text("SANDGATE_RECAPTCHA_MIN_SCORE", {
    default: "0.5",
    doc: "The lowest score of a reCAPTCHA v3 token that is accepted, from 0 to 1",
    accepts: (value) => /^(0(\.\d+)?|1(\.0+)?)$/.test(value),
    expects: "a number from 0 to 1",
  }),
  recaptchaHostnames: list("SANDGATE_RECAPTCHA_HOSTNAMES", {
    default: [],
    doc: "Host names of the pages that reCAPTCHA tokens come from; that of SANDGATE_PUBLIC_URL alone unless set",
  }),
  recaptchaActions: list("SANDGATE_RECAPTCHA_ACTIONS", {
    default: [],
    doc: "Actions of reCAPTCHA v3 tokens that are accepted; any unless set",
  }),
  recaptchaUrl: text("SANDGATE_RECAPTCHA_URL", {
    default: "https://www.google.com/recaptcha/api/siteverify",
    doc: "Where reCAPTCHA tokens are checked",
    accepts: isWebAddress,
    expects: "an http or https address",
  }),
  operatorSecondFactor: choice("SANDGATE_OPERATOR_SECOND_FACTOR", ["optional", "required"], {
    default: "optional",
    doc: "Whether operators have their rights only in sessions that were signed in with a second factor, and in API tokens only while they have one",
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
  ...ssoSettings,
});

export type IdentitySettings = SettingValues<typeof identitySettings>;

/** Throws a SettingsError for invalid ones. The public address comes out normalized, without a slash at its end. */
export function parseIdentitySettings(settings: IdentitySettings): IdentitySettings {
  checkSmtpUrl(settings.smtpUrl);
  checkAdminPassword(settings.adminPassword);
  parseSsoSettings(settings);
  return { ...settings, publicUrl: parsePublicUrl(settings.publicUrl) };
}

export function mailLimits(settings: IdentitySettings): MailLimits {
  const { mailboxMailsPerHour, networkMailsPerHour, mailsPerHour } = settings;
  return { perMailbox: mailboxMailsPerHour, perNetwork: networkMailsPerHour, inAll: mailsPerHour };
}

export function recaptchaSettings(settings: IdentitySettings): RecaptchaSettings {
  const { recaptchaHostnames: hostnames, publicUrl } = settings;
  return {
    secret: settings.recaptchaSecret,
    url: settings.recaptchaUrl,
    minScore: Number(settings.recaptchaMinScore),
    hostnames: (hostnames.length > 0 ? hostnames : [new URL(publicUrl).hostname]).map((name) => name.toLowerCase()),
    actions: settings.recaptchaActions,
  };
}

function isWebAddress(text: string): boolean {
  return ["http:", "https:"].includes(URL.parse(text)?.protocol ?? "");
}

function parsePublicUrl(text: string): string {
  if (isWebAddress(text)) return new URL(text).href.replace(/\/+$/, "");
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
