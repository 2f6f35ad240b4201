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

A program sends the token in the body of POST /auth/verify-email.

If it wasn't you, ignore this mail: nothing happens without the link.
`,
  };
}

/** For a verified user whose address somebody tried to register again. */
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
