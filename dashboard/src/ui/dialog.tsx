import { AlertDialog } from "@base-ui/react/alert-dialog";
import { Dialog } from "@base-ui/react/dialog";
import { X } from "lucide-react";
import { type ReactElement, type ReactNode, useState } from "react";
import { useAction } from "./action.tsx";
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

/** A dialog whose form needs what is read first. It opens when that is there, or says why it can't be read. */
export function EditDialog(o: {
  title: string;
  isReady: boolean;
  error: unknown;
  onClose(): void;
  children: ReactNode;
  wide?: boolean;
}) {
  const { isReady, error, children, ...rest } = o;
  return (
    <FormDialog {...rest} open={isReady || error !== null}>
      {isReady ? children : <Problem error={error} />}
    </FormDialog>
  );
}

interface QuestionProps {
  title: string;
  children: ReactNode;
  /** What the button says that does it. */
  action: string;
}

/** Asks before something is done that can't be undone. */
export function Question(
  o: QuestionProps & {
    trigger?: ReactElement;
    open: boolean;
    onOpenChange(open: boolean): void;
    onConfirm(): void;
    busy?: boolean;
    error?: unknown;
  },
) {
  return (
    <AlertDialog.Root open={o.open} onOpenChange={(open) => o.onOpenChange(open)}>
      {o.trigger && <AlertDialog.Trigger render={o.trigger} />}
      <AlertDialog.Portal>
        <AlertDialog.Backdrop className="backdrop" />
        <AlertDialog.Popup className="dialog">
          <header>
            <AlertDialog.Title>{o.title}</AlertDialog.Title>
          </header>
          <AlertDialog.Description render={<div className="dialog-text" />}>{o.children}</AlertDialog.Description>
          {o.error !== undefined && <Problem error={o.error} />}
          <footer>
            <AlertDialog.Close className="button plain">Cancel</AlertDialog.Close>
            <Button kind="danger" busy={o.busy ?? false} onClick={o.onConfirm}>
              {o.action}
            </Button>
          </footer>
        </AlertDialog.Popup>
      </AlertDialog.Portal>
    </AlertDialog.Root>
  );
}

/** A button that does what it says after a second one is pressed, and shows when that fails. */
export function Confirm({ run, ...o }: QuestionProps & { trigger: ReactElement; run(): Promise<unknown> }) {
  const [open, setOpen] = useState(false);
  const { busy, error, act } = useAction();
  const confirm = () =>
    act(async () => {
      await run();
      setOpen(false);
    });
  return <Question {...o} open={open} onOpenChange={setOpen} onConfirm={confirm} busy={busy} error={error} />;
}
