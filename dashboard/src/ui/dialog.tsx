import { AlertDialog } from "@base-ui/react/alert-dialog";
import { Dialog } from "@base-ui/react/dialog";
import { X } from "lucide-react";
import { type ReactElement, type ReactNode, useState } from "react";
import { Button } from "./basics.tsx";
import { Problem } from "./problem.tsx";

/** A dialog that a form is in. It is opened by its owner, and closed by itself too. */
export function FormDialog(o: { title: string; open: boolean; onClose(): void; children: ReactNode; wide?: boolean }) {
  return (
    <Dialog.Root open={o.open} onOpenChange={(open) => !open && o.onClose()}>
      <Dialog.Portal>
        <Dialog.Backdrop className="backdrop" />
        <Dialog.Popup className={`dialog ${o.wide ? "wide" : ""}`}>
          <header>
            <Dialog.Title>{o.title}</Dialog.Title>
            <Dialog.Close className="icon-button" aria-label="Close">
              <X aria-hidden />
            </Dialog.Close>
          </header>
          {o.children}
        </Dialog.Popup>
      </Dialog.Portal>
    </Dialog.Root>
  );
}

/** A button that does what it says after a second one is pressed, and shows when that fails. */
export function Confirm(o: {
  trigger: ReactElement;
  title: string;
  children: ReactNode;
  action: string;
  run(): Promise<unknown>;
}) {
  const [open, setOpen] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  async function confirm() {
    setBusy(true);
    setError(undefined);
    try {
      await o.run();
      setOpen(false);
    } catch (thrown) {
      setError(thrown);
    } finally {
      setBusy(false);
    }
  }
  return (
    <AlertDialog.Root open={open} onOpenChange={setOpen}>
      <AlertDialog.Trigger render={o.trigger} />
      <AlertDialog.Portal>
        <AlertDialog.Backdrop className="backdrop" />
        <AlertDialog.Popup className="dialog">
          <header>
            <AlertDialog.Title>{o.title}</AlertDialog.Title>
          </header>
          <AlertDialog.Description render={<div className="dialog-text" />}>{o.children}</AlertDialog.Description>
          {error !== undefined && <Problem error={error} />}
          <footer>
            <AlertDialog.Close className="button plain">Cancel</AlertDialog.Close>
            <Button kind="danger" busy={busy} onClick={confirm}>
              {o.action}
            </Button>
          </footer>
        </AlertDialog.Popup>
      </AlertDialog.Portal>
    </AlertDialog.Root>
  );
}
