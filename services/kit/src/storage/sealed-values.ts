/**
 * Where a store keeps sealed values. Each is sealed for the service, this table, its row's id, and the workspace if
 * there is one.
 */
export interface SealedColumn {
  /** The table or collection, whose key is `id`, or `_id`. */
  readonly table: string;
  readonly column: string;
  /** The column or field of the workspace. */
  readonly workspace?: string;
  /** The column or field of the service, where values are sealed for another name than the service's own. */
  readonly service?: string;
}

export interface SealedRow {
  id: string;
  /** Undefined in a row whose value is gone. */
  sealed: Uint8Array | undefined;
  workspace?: string | undefined;
  service?: string | undefined;
}

/** The sealed values of one database. */
export interface SealedValues {
  /** Up to `limit` rows after that id, in the order of ids. */
  list(column: SealedColumn, limit: number, afterId: string | undefined): Promise<SealedRow[]>;
  /** Replaces a value with another. Changes nothing and returns false when the row has a different value by now. */
  replace(column: SealedColumn, id: string, before: Uint8Array, after: Uint8Array): Promise<boolean>;
}

/** The sealed values of a service's store, and where they are. */
export interface SealedStore extends SealedValues {
  readonly columns: readonly SealedColumn[];
}

/** The columns that the kit itself seals in every database. */
export const kitSealedColumns: readonly SealedColumn[] = [
  { table: "kit_answers", column: "sealed", service: "service", workspace: "workspace" },
];
