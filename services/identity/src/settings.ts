import { getOption } from "@bufbuild/protobuf";
import { field, type StringRules } from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";
import { publicUrl } from "@sandgate/kit/base/public-url";
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
import { isWebAddress } from "@sandgate/kit/base/web-addresses";
import { RegisterRequestSchema } from "@sandgate/proto/identity/v1/identity";
import { isOwnName } from "./domain/passwords.ts";
import { defaultOperatorUsername } from "./domain/users.ts";
import { parseSsoSettings, ssoSettings } from "./sso/settings.ts";
import type { MailLimits } from "./usecases/mail-budgets.ts";
import type { RecaptchaSettings } from "./usecases/recaptcha.ts";

export const identitySettings = defineSettings({
  data: text("SANDGATE_DATA", { default: "./data", doc: "Folder of this machine's data; mails are written under it" }),
  publicUrl,
  registration: choice("SANDGATE_REGISTRATION", ["open", "closed"], {
    default: "open",
    doc: "Whether anyone may register an account",
  }),
  smtpUrl: secret("SANDGATE_SMTP_URL", {
    optional: true,
    doc: "SMTP server for mails (smtp[s]://user:password@host:port). Without it, each mail is written to a file",
  }),
  mailFrom: text("SANDGATE_MAIL_FROM", { default: "Sandgate <sandgate@localhost>", doc: "Sender of mails" }),
  adminUsername: text("SANDGATE_ADMIN_USERNAME", {
    default: defaultOperatorUsername,
    doc: "User name of the operator account that the first start creates",
  }),
  adminPassword: secret("SANDGATE_ADMIN_PASSWORD", {
    optional: true,
    doc: "Password of that account. Without it, a random one is made and shown once",
  }),
  signInRateLimit: integer("SANDGATE_SIGNIN_RATE_LIMIT", {
    default: 10,
    doc: "Sign-in attempts a minute at one account from one address. 0: no limit",
  }),
  mailsPerHour: integer("SANDGATE_MAILS_PER_HOUR", {
    default: 1000,
    doc: "Mails an hour to all users together. A fifth is reserved for users who have a verified account, and a fifth for networks that have hardly asked for any. 0: no limit",
  }),
  networkMailsPerHour: integer("SANDGATE_NETWORK_MAILS_PER_HOUR", {
    default: 30,
    doc: "Mails an hour that requests from one address may cause. The networks around it have higher limits. 0: no limit",
  }),
  mailboxMailsPerHour: integer("SANDGATE_MAILBOX_MAILS_PER_HOUR", {
    default: 5,
    doc: "Mails an hour to one mailbox, including all its sub-addresses (ann+shop@…), three fifths of them from one address. As many again are for networks that have hardly asked for any, and an account's own networks count apart. 0: no limit",
  }),
  recaptchaSecret: secret("SANDGATE_RECAPTCHA_SECRET", {
    optional: true,
    doc: "Secret key of reCAPTCHA (v2 or v3). With it, registrations and sign-ins need a token. Without it, no token is checked",
  }),
  recaptchaMinScore: text("SANDGATE_RECAPTCHA_MIN_SCORE", {
    default: "0.5",
    doc: "Lowest accepted score of a reCAPTCHA v3 token, from 0 to 1",
    accepts: (value) => /^(0(\.\d+)?|1(\.0+)?)$/.test(value),
    expects: "a number from 0 to 1",
  }),
  recaptchaHostnames: list("SANDGATE_RECAPTCHA_HOSTNAMES", {
    default: [],
    doc: "Host names of the pages that reCAPTCHA tokens may come from. Default: the host of SANDGATE_PUBLIC_URL",
  }),
  recaptchaActions: list("SANDGATE_RECAPTCHA_ACTIONS", {
    default: [],
    doc: "Accepted actions of reCAPTCHA v3 tokens. Default: any",
  }),
  recaptchaUrl: text("SANDGATE_RECAPTCHA_URL", {
    default: "https://www.google.com/recaptcha/api/siteverify",
    doc: "Address at which reCAPTCHA tokens are verified",
    accepts: isWebAddress,
    expects: "an http or https address",
  }),
  operatorSecondFactor: choice("SANDGATE_OPERATOR_SECOND_FACTOR", ["optional", "required"], {
    default: "optional",
    doc: "Whether operator rights require a second factor: of the sign-in in sessions, of the account in API tokens",
  }),
  maxApiTokens: integer("SANDGATE_USER_MAX_API_TOKENS", {
    default: 50,
    min: 0,
    doc: "API tokens that a user may have. Expired tokens count while they are listed. 0: no limit",
  }),
  apiTokenMaxDays: integer("SANDGATE_API_TOKEN_MAX_DAYS", {
    default: 0,
    min: 0,
    max: 36_500,
    doc: "Longest lifetime of a new API token in days, which is also the default. 0: no limit",
  }),
  ...ssoSettings,
});

export type IdentitySettings = SettingValues<typeof identitySettings>;

/** Throws a SettingsError for invalid ones. */
export function parseIdentitySettings(settings: IdentitySettings): IdentitySettings {
  checkSmtpUrl(settings.smtpUrl);
  checkAdminPassword(settings);
  parseSsoSettings(settings);
  return settings;
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

function checkSmtpUrl(text: string | undefined): void {
  if (text === undefined || ["smtp:", "smtps:"].includes(URL.parse(text)?.protocol ?? "")) return;
  throw new SettingsError([`${identitySettings.smtpUrl.name} must be an smtp or smtps address`]);
}

function checkAdminPassword({ adminUsername, adminPassword: password }: IdentitySettings): void {
  const { name } = identitySettings.adminPassword;
  const { minLen, maxLen } = passwordRules();
  if (password === undefined) return;
  if (password.length < minLen || password.length > maxLen) {
    throw new SettingsError([`${name} must have ${minLen} to ${maxLen} characters`]);
  }
  if (isOwnName(password, adminUsername)) throw new SettingsError([`${name} must not be the account's name`]);
}

/** The limits of a password, as the contract has them. */
function passwordRules(): StringRules {
  const { type } = getOption(RegisterRequestSchema.field.password, field);
  if (type.case === "string") return type.value;
  throw new Error("The contract has no rules of a password.");
}
