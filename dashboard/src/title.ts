import { useEffect } from "react";

/** Sets the title of the browser's tab while a page is shown. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} - Sandgate`;
  }, [title]);
}
