/**
 * Names of the MongoDB driver's connection errors, and the labels of errors that pass, such as those of an election or
 * a conflict.
 */
const connectionErrors =
  /^(Mongo(Network|NetworkTimeout|ServerSelection|PoolCleared|PoolClosed|WaitQueueTimeout|NotConnected|TopologyClosed|OperationTimeout)|PoolClearedOnNetwork)Error$/;
const passingLabels = ["RetryableWriteError", "TransientTransactionError", "UnknownTransactionCommitResult"];

/**
 * True when something failed because MongoDB could not be reached or had no primary. Such errors are recognized by
 * their names, so that the driver isn't loaded where another database is used.
 */
export function isDatabaseUnreachable(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (connectionErrors.test(error.name)) return true;
  const { hasErrorLabel } = error as { hasErrorLabel?: (label: string) => boolean };
  if (hasErrorLabel && passingLabels.some((label) => hasErrorLabel.call(error, label))) return true;
  return isDatabaseUnreachable(error.cause);
}
