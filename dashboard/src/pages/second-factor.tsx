import type { NewSecondFactor } from "@sandgate/client";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { encode } from "uqr";
import { accountQuery } from "../account.ts";
import { api } from "../api.ts";
import { Button, CodeLine, CopyButton, Loading } from "../ui/basics.tsx";
import { FormDialog } from "../ui/dialog.tsx";
import { Form, type FormFields, TextField } from "../ui/form.tsx";
import { Problem } from "../ui/problem.tsx";
import { saveFile } from "../ui/save.ts";

const key = ["second-factor"];

type Step = "password" | "codes" | "remove" | NewSecondFactor;

/** The codes of an authenticator app, which a sign-in then needs beside the password. */
export function SecondFactor() {
  const queries = useQueryClient();
  const factor = useQuery({ queryKey: key, queryFn: ({ signal }) => api.secondFactor.get({ signal }) });
  const [step, setStep] = useState<Step>();
  const [recoveryCodes, setRecoveryCodes] = useState<readonly string[]>();
  async function finish(codes?: readonly string[]) {
    setRecoveryCodes(codes);
    setStep(undefined);
    await Promise.all([
      queries.invalidateQueries({ queryKey: key }),
      queries.invalidateQueries({ queryKey: accountQuery.queryKey }),
    ]);
  }
  const close = () => setStep(undefined);
  const confirmed = (fields: FormFields) => ({
    otp: fields.text("otp") ?? "",
    ...(fields.exact("password") && { password: fields.exact("password") }),
  });
  return (
    <section className="card">
      <h2>Second factor</h2>
      {factor.isPending && <Loading />}
      {factor.isError && <Problem error={factor.error} />}
      {recoveryCodes && <RecoveryCodes codes={recoveryCodes} onClose={() => setRecoveryCodes(undefined)} />}
      {factor.data && !factor.data.enabled && (
        <>
          <p className="muted">A sign-in then needs a code of your authenticator app beside the password.</p>
          <p>
            <Button kind="primary" onClick={() => setStep("password")}>
              Set up
            </Button>
          </p>
        </>
      )}
      {factor.data?.enabled && (
        <>
          <p>
            On, with {factor.data.recoveryCodesLeft} recovery {factor.data.recoveryCodesLeft === 1 ? "code" : "codes"}{" "}
            left.
          </p>
          <div className="form-end">
            <Button onClick={() => setStep("codes")}>New recovery codes</Button>
            <Button kind="danger" onClick={() => setStep("remove")}>
              Turn off
            </Button>
          </div>
        </>
      )}
      <FormDialog title="Set up a second factor" open={step === "password"} onClose={close}>
        <Form
          action="Go on"
          onCancel={close}
          send={async (fields) => {
            const password = fields.exact("password");
            setStep(await api.secondFactor.create(password ? { password } : {}));
          }}
        >
          <PasswordField />
        </Form>
      </FormDialog>
      <FormDialog title="Scan the code" open={typeof step === "object"} onClose={close}>
        {typeof step === "object" && (
          <Form
            action="Turn on"
            onCancel={close}
            send={async (fields) => finish(await api.secondFactor.confirm({ otp: fields.text("otp") ?? "" }))}
          >
            <p>Scan it with your authenticator app, or type the key there.</p>
            <QrCode text={step.uri} />
            <CodeLine code={step.secret} />
            <CodeField />
          </Form>
        )}
      </FormDialog>
      <FormDialog title="New recovery codes" open={step === "codes"} onClose={close}>
        <Form
          action="Make new ones"
          onCancel={close}
          send={async (fields) => finish(await api.secondFactor.createRecoveryCodes(confirmed(fields)))}
        >
          <p>The old ones stop working.</p>
          <PasswordField />
          <CodeField />
        </Form>
      </FormDialog>
      <FormDialog title="Turn the second factor off" open={step === "remove"} onClose={close}>
        <Form
          kind="danger"
          action="Turn off"
          onCancel={close}
          send={async (fields) => {
            await api.secondFactor.delete(confirmed(fields));
            await finish();
          }}
        >
          <PasswordField />
          <CodeField />
        </Form>
      </FormDialog>
    </section>
  );
}

function PasswordField() {
  return (
    <TextField
      label="Password"
      name="password"
      type="password"
      autoComplete="current-password"
      optional
      hint="Of your account, if it has one."
    />
  );
}

function CodeField() {
  return <TextField label="Authentication code" name="otp" autoComplete="one-time-code" />;
}

/** Drawn as one path: no text becomes markup. */
function QrCode({ text }: { text: string }) {
  const { data, size } = encode(text, { border: 0 });
  const path = data.flatMap((row, y) => row.flatMap((dark, x) => (dark ? `M${x} ${y}h1v1h-1z` : []))).join("");
  return (
    <svg className="qr" viewBox={`0 0 ${size} ${size}`} role="img" aria-label="QR code of the key">
      <path d={path} fill="#000" />
    </svg>
  );
}

function RecoveryCodes({ codes, onClose }: { codes: readonly string[]; onClose(): void }) {
  const text = `${codes.join("\n")}\n`;
  return (
    <div className="notice good secret">
      <p>
        <strong>Recovery codes.</strong> Each works once in place of a code. They are not shown again.
      </p>
      <ul className="codes">
        {codes.map((code) => (
          <li key={code}>{code}</li>
        ))}
      </ul>
      <div className="form-end">
        <CopyButton text={text} />
        <Button
          className="small"
          onClick={() => saveFile("sandgate-recovery-codes.txt", new Blob([text], { type: "text/plain" }))}
        >
          Download
        </Button>
        <Button className="small" onClick={onClose}>
          I have them
        </Button>
      </div>
    </div>
  );
}
