import { useEffect } from "react";

const unsaved = new Set<symbol>();

/** Whether something would be lost with the page. */
export const hasUnsaved = (): boolean => unsaved.size > 0;

/**
 * Notes that something would be lost with the page, such as a text that isn't saved, until the returned function is
 * called. Until then the browser asks before it leaves the page, and the session goes on.
 */
export function noteUnsaved(): () => void {
  const key = Symbol();
  unsaved.add(key);
  return () => void unsaved.delete(key);
}

/** Its user was asked, and leaves the page all the same. */
export function discardUnsaved(): void {
  unsaved.clear();
}

/** Notes it while a component shows what isn't saved. */
export function useUnsaved(isUnsaved: boolean): void {
  useEffect(() => (isUnsaved ? noteUnsaved() : undefined), [isUnsaved]);
}

window.addEventListener("beforeunload", (event) => {
  if (hasUnsaved()) event.preventDefault();
});
