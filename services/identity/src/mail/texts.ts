import type { LinkedIdentity } from "../domain/single-sign-on.ts";

export interface Mail {
  to: string;
  subject: string;
  text: string;
}

/** `publicUrl` is the platform's address without a slash at its end. */
export function composeVerification(o: { to: string; publicUrl: string; token: string }): Mail {
  return {
    to: o.to,
    subject: "Confirm your address for Sandgate",
    text: `Somebody, most likely you, registered this address with Sandgate.
Confirm it within 24 hours with this link, and choose your password there:

${o.publicUrl}/auth/verify-email?token=${o.token}

A program sends the token and the password in the body of POST
/auth/verify-email. Only that password counts, whoever asked for this mail.

If it wasn't you, ignore this mail: nothing happens without the link.
`,
  };
}

/** The mail to a verified user whose address somebody tried to register again. */
export function composeNameTaken(o: { to: string; publicUrl: string }): Mail {
  return {
    to: o.to,
    subject: "You already have a Sandgate account",
    text: `Somebody, most likely you, tried to register this address with Sandgate
again. It already has an account, and nothing was changed.

Sign in with your existing password: ${o.publicUrl}
`,
  };
}

/** The mail to a user who forgot the password. */
export function composePasswordReset(o: { to: string; publicUrl: string; token: string }): Mail {
  return {
    to: o.to,
    subject: "Set a new Sandgate password",
    text: `Somebody, most likely you, asked for a new password for your Sandgate
account. Set one within an hour with this link:

${o.publicUrl}/auth/password/reset?token=${o.token}

A program sends the token and the password in the body of POST
/auth/password/reset. It ends all sessions and revokes all API tokens.

If it wasn't you, ignore this mail: nothing happens without the link.
`,
  };
}

/** The mail to a user whose password was replaced. */
export function composePasswordChanged(o: {
  to: string;
  publicUrl: string;
  revokesApiTokens: boolean;
  /** What can still sign in. */
  identities: readonly Pick<LinkedIdentity, "provider" | "username">[];
}): Mail {
  const links = o.identities.map(({ provider, username }) => `- ${provider}: ${username}\n`).join("");
  const remaining = `These accounts at providers can still sign in to yours:

${links}
Remove one that isn't yours: GET ${o.publicUrl}/auth/identities
lists them, DELETE /auth/identities/{id} removes one.

`;
  return {
    to: o.to,
    subject: "Your Sandgate password was changed",
    text: `The password of your Sandgate account was changed, and its other sessions
were ended. Its API tokens ${o.revokesApiTokens ? "were revoked" : "are as before"}.

${links && remaining}If it wasn't you, set a new one at once by sending your address to POST
${o.publicUrl}/auth/password/forgot. That revokes all API tokens too.
`,
  };
}

/** The mail to a user who has another API token now. */
export function composeApiTokenCreated(o: { to: string; publicUrl: string; hint: string }): Mail {
  return {
    to: o.to,
    subject: "Your Sandgate account has a new API token",
    text: `An API token was made for your Sandgate account. It begins with ${o.hint}.

If it wasn't you, set a new password at once by sending your address to
POST ${o.publicUrl}/auth/password/forgot. That ends all
sessions and revokes all API tokens.
`,
  };
}

/** The mail to a user whose account was linked to an account at a provider. */
export function composeProviderLinked(o: { to: string; issuer: string; publicUrl: string }): Mail {
  const { host } = new URL(o.issuer);
  return {
    to: o.to,
    subject: `You can now sign in to Sandgate with ${host}`,
    text: `Somebody, most likely you, signed in to your Sandgate account with an account
at ${host} for the first time. That account has your
address, and from now on it can sign in to your Sandgate account.

If it wasn't you, set a new password at once by sending your address to
POST ${o.publicUrl}/auth/password/forgot, and remove the link:
GET /auth/identities lists it, DELETE /auth/identities/{id} removes it.
`,
  };
}

/** The mail to a user who has removed such a link. */
export function composeProviderUnlinked(o: {
  to: string;
  provider: string;
  username: string;
  publicUrl: string;
}): Mail {
  return {
    to: o.to,
    subject: `An account at ${o.provider} no longer signs in to Sandgate as you`,
    text: `The account ${o.username} at ${o.provider} can no longer sign in to
your Sandgate account. Your other sessions were ended.

If it wasn't you, set a new password at once by sending your address to
POST ${o.publicUrl}/auth/password/forgot.
`,
  };
}

/** The mail to a user whose account has a second factor from now on. */
export function composeSecondFactorEnabled(o: { to: string; publicUrl: string }): Mail {
  return {
    to: o.to,
    subject: "Your Sandgate account has a second factor",
    text: `From now on, signing in to your Sandgate account with the password needs a
code from your authenticator app. Keep the recovery codes where you can find
them without your phone.

If it wasn't you, set a new password at once by sending your address to
POST ${o.publicUrl}/auth/password/forgot, and ask an operator
to remove the second factor.
`,
  };
}

/** The mail to a user whom somebody added to a workspace, whose name it leaves out: that may say anything. */
export function composeMemberAdded(o: {
  to: string;
  publicUrl: string;
  addedBy: string | undefined;
  workspaceId: string;
  userId: string;
}): Mail {
  return {
    to: o.to,
    subject: "You were added to a Sandgate workspace",
    text: `${o.addedBy ?? "Another user"} added you to the workspace
${o.workspaceId}.

If you don't want to be in it, leave it with your access token:

DELETE ${o.publicUrl}/workspaces/${o.workspaceId}/members/${o.userId}
`,
  };
}

/** The mail to a user whose second factor was removed. */
export function composeSecondFactorRemoved(o: { to: string; publicUrl: string }): Mail {
  return {
    to: o.to,
    subject: "The second factor of your Sandgate account was removed",
    text: `From now on, signing in to your Sandgate account needs only the password.
You or an operator removed the second factor.

If it wasn't you, set a new password at once by sending your address to
POST ${o.publicUrl}/auth/password/forgot, look through your
API tokens, and set up a second factor again.
`,
  };
}

/** The mail to a user whose recovery code was used. */
export function composeRecoveryCodeUsed(o: { to: string; publicUrl: string }): Mail {
  return {
    to: o.to,
    subject: "A recovery code of your Sandgate account was used",
    text: `Somebody, most likely you, used a recovery code in place of a code from your
authenticator app. That recovery code no longer works.

If you have lost the app, remove the second factor with another recovery
code (DELETE ${o.publicUrl}/auth/second-factor) and set it up
again. If it wasn't you, set a new password at once by sending your address
to POST ${o.publicUrl}/auth/password/forgot.
`,
  };
}
