import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api } from "../api.ts";
import { useTitle } from "../title.ts";
import { Button, Field } from "../ui/basics.tsx";
import { Entry } from "../ui/entry.tsx";
import { issueOf, Problem } from "../ui/problem.tsx";

export function CreateAccount() {
  useTitle("Create account");
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const register = useMutation({
    mutationFn: () => api.account.register({ username, password }),
  });
  const resend = useMutation({
    mutationFn: () => api.account.resendVerification(username),
  });
  function submit(event: FormEvent) {
    event.preventDefault();
    register.mutate();
  }

  if (register.isSuccess) {
    return (
      <Entry title="Look into your mailbox">
        <p role="status">
          A mail with a link is on its way to <strong>{username}</strong>. The link asks for your password once more,
          and opens the account.
        </p>
        {resend.isSuccess && <p className="notice good">Sent again.</p>}
        {resend.isError && <Problem error={resend.error} />}
        <p className="entry-links">
          <Link to="/sign-in">Sign in</Link>
          <Button kind="quiet" className="small" busy={resend.isPending} onClick={() => resend.mutate()}>
            Send the mail again
          </Button>
        </p>
      </Entry>
    );
  }
  return (
    <Entry title="Create account">
      <form className="form" onSubmit={submit}>
        <Field label="Email" problem={issueOf(register.error, "username")}>
          {(control) => (
            <input
              {...control}
              type="email"
              name="username"
              value={username}
              onChange={(event) => setUsername(event.target.value)}
              autoComplete="username"
              required
            />
          )}
        </Field>
        <Field label="Password" hint="At least 10 characters." problem={issueOf(register.error, "password")}>
          {(control) => (
            <input
              {...control}
              type="password"
              name="password"
              value={password}
              onChange={(event) => setPassword(event.target.value)}
              autoComplete="new-password"
              minLength={10}
              maxLength={256}
              required
            />
          )}
        </Field>
        {register.isError && <Problem error={register.error} />}
        <Button kind="primary" className="wide" type="submit" busy={register.isPending}>
          Create account
        </Button>
        <p className="entry-links">
          <Link to="/sign-in">Sign in instead</Link>
        </p>
      </form>
    </Entry>
  );
}
