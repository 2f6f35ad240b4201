import { SandgateError } from "@sandgate/client";
import { AlertTriangle } from "lucide-react";
import type { ReactNode } from "react";
import { CopyButton } from "./basics.tsx";

/** What an error says: its message, what is likely to help, and the id by which the operator finds the request. */
export function Problem({ error, children }: { error: unknown; children?: ReactNode }) {
  const { message, hint, requestId } = describe(error);
  return (
    <div role="alert" className="problem">
      <AlertTriangle aria-hidden className="problem-icon" />
      <div>
        <p className="problem-message">{message}</p>
        {hint && <p>{hint}</p>}
        {requestId && (
          <p className="request-id">
            Request <code>{requestId}</code> <CopyButton text={requestId} label="Copy request id" />
          </p>
        )}
        {children}
      </div>
    </div>
  );
}

function describe(error: unknown): { message: string; hint?: string | undefined; requestId?: string | undefined } {
  if (!(error instanceof SandgateError)) return { message: error instanceof Error ? error.message : String(error) };
  const issues = error.details.map(({ field, issue }) => `${nameOf(field)} ${issue}`).join("; ");
  return {
    message: issues ? `${error.message} (${issues})` : error.message,
    hint: error.hint,
    requestId: error.requestId,
  };
}

const nameOf = (field: string | null | undefined) => field?.replace(/^\w+\./, "") ?? "";

/** What is wrong with a field of the body, for the form that sent it. */
export function issueOf(error: unknown, field: string): string | undefined {
  if (!(error instanceof SandgateError)) return undefined;
  const issue = error.details.find((detail) => detail.field === `body.${field}`)?.issue;
  return issue && `${issue.charAt(0).toUpperCase()}${issue.slice(1)}.`;
}
