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
  sealed: Uint8Array;
  workspace?: string | undefined;
  service?: string | undefined;
}

/** A value and another that shall replace it. */
export interface SealedChange {
  id: string;
  before: Uint8Array;
  after: Uint8Array;
}

/** The sealed values of one database. */
export interface SealedValues {
  /**
   * Up to `limit` rows that another key than this one seals, of those after `after`, in an order of their own. On
   * SQLite, those that this key seals cost nothing, however many they are. MongoDB reads them all.
   */
  listOthers(column: SealedColumn, keyId: string, limit: number, after: SealedRow | undefined): Promise<SealedRow[]>;
  /** Replaces values, and returns the ids of those that were replaced: a row that has changed by now stays. */
  replace(column: SealedColumn, changes: readonly SealedChange[]): Promise<string[]>;
}

/** The sealed values of a service's store, and where they are. */
export interface SealedStore extends SealedValues {
  readonly columns: readonly SealedColumn[];
}

/** The columns that the kit itself seals in every database. */
export const kitSealedColumns: readonly SealedColumn[] = [
  { table: "kit_answers", column: "sealed", service: "service", workspace: "workspace" },
];
