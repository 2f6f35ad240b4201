/** Names of the MongoDB driver's errors about connections, and the labels of errors that pass: an election, a conflict. */
const connectionErrors =
  /^Mongo(Network|NetworkTimeout|ServerSelection|PoolCleared|PoolClosed|WaitQueueTimeout|NotConnected|TopologyClosed|OperationTimeout)Error$/;
const passingLabels = ["RetryableWriteError", "TransientTransactionError", "UnknownTransactionCommitResult"];

/**
 * Whether it failed because MongoDB could not be reached or had no primary. Recognized by names, so that the driver isn't loaded
 * where another database is used.
 */
export function isDatabaseUnreachable(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (connectionErrors.test(error.name)) return true;
  const { hasErrorLabel } = error as { hasErrorLabel?: (label: string) => boolean };
  if (hasErrorLabel && passingLabels.some((label) => hasErrorLabel.call(error, label))) return true;
  return isDatabaseUnreachable(error.cause);
}
