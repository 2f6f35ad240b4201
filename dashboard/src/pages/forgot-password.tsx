import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api } from "../api.ts";
import { useTitle } from "../title.ts";
import { Button } from "../ui/basics.tsx";
import { EmailField, Entry } from "../ui/entry.tsx";
import { Problem } from "../ui/problem.tsx";

export function ForgotPassword() {
  useTitle("Forgot password");
  const [username, setUsername] = useState("");
  const forgot = useMutation({
    mutationFn: () => api.account.requestPasswordReset(username),
  });
  function submit(event: FormEvent) {
    event.preventDefault();
    forgot.mutate();
  }
  return (
    <Entry title="Forgot password?">
      {forgot.isSuccess ? (
        <p role="status">
          If there is an account of <strong>{username}</strong>, a mail with a link to set a new password is on its way.
          The link works for an hour.
        </p>
      ) : (
        <form className="form" onSubmit={submit}>
          <p className="muted">We send you a link with which you set a new one.</p>
          <EmailField value={username} onChange={setUsername} />
          {forgot.isError && <Problem error={forgot.error} />}
          <Button kind="primary" className="wide" type="submit" busy={forgot.isPending}>
            Send the link
          </Button>
        </form>
      )}
      <p className="entry-links">
        <Link to="/sign-in">Back to sign in</Link>
      </p>
    </Entry>
  );
}
