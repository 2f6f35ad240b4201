import { SandgateError } from "@sandgate/client";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { apiUrl } from "../api.ts";
import { destination } from "../destination.ts";
import { readSignInOptions, type SignInOptions, signIn } from "../session.ts";
import { beginSso, forgetSso, ssoFailure } from "../sso.ts";
import { useTitle } from "../title.ts";
import { Button, Field } from "../ui/basics.tsx";
import { EmailField, Entry } from "../ui/entry.tsx";
import { Problem } from "../ui/problem.tsx";

/** Whether the right password was given, and a code of the second factor is wanted as well. */
const wantsCode = (error: unknown) =>
  error instanceof SandgateError &&
  error.code === "invalid_credentials" &&
  error.details.some(({ field }) => field === "body.otp");

export function SignIn() {
  useTitle("Sign in");
  const { next } = useSearch({ from: "/entry/sign-in" });
  const navigate = useNavigate();
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const [otp, setOtp] = useState<string>();
  const [error, setError] = useState<unknown>(readSsoFailure);
  const [busy, setBusy] = useState(false);
  const codeInput = useRef<HTMLInputElement>(null);
  const needsCode = otp !== undefined;
  const { data: options } = useQuery({ queryKey: ["sign-in-options"], queryFn: readSignInOptions });
  useEffect(() => {
    if (needsCode) codeInput.current?.focus();
  }, [needsCode]);

  async function submit(event: FormEvent) {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await signIn({ username, password, ...(otp && { otp }) });
      forgetSso();
      await navigate({ ...destination(next), replace: true });
    } catch (thrown) {
      if (wantsCode(thrown) && !needsCode) setOtp("");
      else setError(thrown);
    } finally {
      setBusy(false);
    }
  }

  return (
    <Entry title={needsCode ? "One more step" : "Sign in"}>
      <form className="form" onSubmit={submit}>
        {needsCode ? (
          <Field label="Authentication code" hint="From your authenticator app, or a recovery code.">
            {(control) => (
              <input
                {...control}
                ref={codeInput}
                value={otp}
                onChange={(event) => setOtp(event.target.value)}
                autoComplete="one-time-code"
                inputMode="text"
                required
              />
            )}
          </Field>
        ) : (
          <>
            <EmailField value={username} onChange={setUsername} />
            <Field label="Password">
              {(control) => (
                <input
                  {...control}
                  name="password"
                  type="password"
                  value={password}
                  onChange={(event) => setPassword(event.target.value)}
                  autoComplete="current-password"
                  required
                />
              )}
            </Field>
          </>
        )}
        {error !== undefined && <Problem error={error} />}
        <Button kind="primary" className="wide" type="submit" busy={busy}>
          Sign in
        </Button>
        {needsCode ? (
          <p>
            <Button kind="quiet" className="small" onClick={() => setOtp(undefined)}>
              Use another account
            </Button>
          </p>
        ) : (
          <p className="entry-links">
            <Link to="/forgot-password">Forgot password?</Link>
            {options?.registration_open !== false && <Link to="/create-account">Create account</Link>}
          </p>
        )}
      </form>
      {options?.recaptcha && (
        <p className="notice">
          This installation checks sign-ins by reCAPTCHA, which this page can't show. Sign in by a provider.
        </p>
      )}
      {!needsCode && options && options.providers.length > 0 && <Providers options={options} next={next} />}
    </Entry>
  );
}

const providerNames: Record<string, string> = { google: "Google", microsoft: "Microsoft", github: "GitHub" };

function Providers({ options, next }: { options: SignInOptions; next: string | undefined }) {
  const query = new URLSearchParams({ redirect_uri: options.redirect_uri });
  return (
    <>
      <p className="or">or</p>
      <div className="stack">
        {options.providers.map((provider) => (
          <Button
            key={provider}
            className="wide"
            onClick={() => {
              beginSso(next);
              location.assign(`${apiUrl}/auth/sso/${provider}?${query}`);
            }}
          >
            Sign in with {providerNames[provider] ?? provider}
          </Button>
        ))}
      </div>
    </>
  );
}

const retryHint =
  "Try again. If it fails again, sign in another way, or ask an operator of this server, who finds the cause by the request's id.";

function readSsoFailure(): unknown {
  const failure = ssoFailure();
  if (!failure) return undefined;
  const { error: code = "internal_error", hint, requestId } = failure;
  // Every other refusal says what to do.
  const cancelled = code === "forbidden" && hint === undefined;
  return new SandgateError({
    code,
    message: cancelled ? "The sign-in was cancelled at the provider." : `The provider's sign-in failed (${code}).`,
    hint: hint ?? (cancelled ? "Sign in again, or in another way." : retryHint),
    requestId,
  });
}
