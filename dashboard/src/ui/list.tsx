import type { List, Page } from "@sandgate/client";
import { type Query, type QueryKey, type UseQueryResult, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Loading } from "./basics.tsx";
import { Pager } from "./pager.tsx";
import { Problem } from "./problem.tsx";

/** Shows the rows of before until others have come, unless those were of another workspace: the key's first part. */
export const keepWithin =
  (workspace: unknown) =>
  <T,>(previous: T | undefined, query: Pick<Query, "queryKey"> | undefined): T | undefined =>
    query?.queryKey[0] === workspace ? previous : undefined;

/** Reads the page of a list that a cursor is for; the first without one. */
export function usePage<T>(o: {
  key: QueryKey;
  list(): List<T>;
  cursor: string | undefined;
  refetchInterval?: number | ((page: Page<T> | undefined) => number);
}): UseQueryResult<Page<T>> {
  const { refetchInterval: interval } = o;
  return useQuery({
    queryKey: [...o.key, o.cursor],
    queryFn: ({ signal }) => o.list().page(o.cursor, { signal }),
    placeholderData: keepWithin(o.key[0]),
    refetchInterval: ({ state: { data } }) => (typeof interval === "function" ? interval(data) : (interval ?? false)),
  });
}

/** A table, whose rows stand below each other where it is narrow. The caption is for those who hear the page. */
export function Table(o: { caption: string; columns: readonly string[]; children: ReactNode }) {
  return (
    <table className="stacked">
      <caption className="visually-hidden">{o.caption}</caption>
      <thead>
        <tr>
          {o.columns.map((column) => (
            <th key={column} scope="col" className={column === "Actions" ? "end" : undefined}>
              {column}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>{o.children}</tbody>
    </table>
  );
}

/** A page of a list: its rows, or what to do first where there are none; and the way to the next page. */
export function Rows<T>(o: {
  page: UseQueryResult<Page<T>>;
  cursor: string | undefined;
  onTurn(cursor: string | undefined): void;
  /** What the list is, for those who hear the page. */
  caption: string;
  columns: readonly string[];
  empty: ReactNode;
  children(item: T): ReactNode;
}) {
  const { data, error, isPending } = o.page;
  const items = data?.items ?? [];
  return (
    <>
      {error && <Problem error={error} />}
      {isPending && !error && <Loading />}
      {data && items.length === 0 && !error && o.empty}
      {items.length > 0 && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls where it is narrow, by keyboard too.
        <section className="table-box" aria-label={o.caption} tabIndex={0}>
          <Table caption={o.caption} columns={o.columns}>
            {items.map(o.children)}
          </Table>
        </section>
      )}
      <Pager cursor={o.cursor} nextCursor={data?.nextCursor ?? null} onTurn={o.onTurn} />
    </>
  );
}
