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
Confirm it within 24 hours with this link:

${o.publicUrl}/auth/verify-email?token=${o.token}

A program sends the token in the body of POST /auth/verify-email, along with
a password if this mail was not sent for a registration.

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
/auth/password/reset. A new password ends all sessions.

If it wasn't you, ignore this mail: nothing happens without the link.
`,
  };
}

/** The mail to a user whose password was replaced. */
export function composePasswordChanged(o: { to: string; publicUrl: string }): Mail {
  return {
    to: o.to,
    subject: "Your Sandgate password was changed",
    text: `The password of your Sandgate account was changed, and its other sessions
were ended.

If it wasn't you, set a new one at once by sending your address to POST
${o.publicUrl}/auth/password/forgot, and look through your API tokens.
`,
  };
}

/** The mail to a user whose account was linked to an account at a provider. */
export function composeProviderLinked(o: { to: string; issuer: string }): Mail {
  const { host } = new URL(o.issuer);
  return {
    to: o.to,
    subject: `You can now sign in to Sandgate with ${host}`,
    text: `Somebody, most likely you, signed in to your Sandgate account with an account
at ${host} for the first time. That account has your
address, and from now on it can sign in to your Sandgate account.

If it wasn't you, ask an operator of this server to disable your account.
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
