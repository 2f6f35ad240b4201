import { type ComponentProps, useState } from "react";
import { Button } from "./basics.tsx";
import { Problem } from "./problem.tsx";

/** Something that is done at a click: whether it is under way, and why it failed. */
export function useAction(): { busy: boolean; error: unknown; act(run: () => Promise<unknown>): Promise<void> } {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  async function act(run: () => Promise<unknown>) {
    setBusy(true);
    setError(undefined);
    try {
      await run();
    } catch (thrown) {
      setError(thrown);
    } finally {
      setBusy(false);
    }
  }
  return { busy, error, act };
}

/** A button that does something at once, and shows when that fails. */
export function ActionButton({ run, ...rest }: ComponentProps<typeof Button> & { run(): Promise<unknown> }) {
  const { busy, error, act } = useAction();
  return (
    <>
      <Button {...rest} busy={busy} onClick={() => act(run)} />
      {error !== undefined && <Problem error={error} />}
    </>
  );
}
