import { Button } from "./basics.tsx";

/** From page to page of a list. The way back is the browser's; the first page is a step too. */
export function Pager(o: {
  cursor: string | undefined;
  nextCursor: string | null;
  onTurn(cursor: string | undefined): void;
}) {
  if (o.cursor === undefined && o.nextCursor === null) return null;
  return (
    <nav className="pager" aria-label="Pages">
      <Button disabled={o.cursor === undefined} onClick={() => o.onTurn(undefined)}>
        First page
      </Button>
      <Button disabled={o.nextCursor === null} onClick={() => o.onTurn(o.nextCursor ?? undefined)}>
        Next page
      </Button>
    </nav>
  );
}
