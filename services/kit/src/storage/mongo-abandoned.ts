import { type Document, type MongoClient, ReadConcern } from "mongodb";
import type { Logger } from "../base/logging.ts";

/** A transaction that has been idle for this long is abandoned, since ours take milliseconds. */
const abandonedMs = 3_000;
/** The least time between two checks. */
const checkEveryMs = 1_000;

/**
 * Returns a function that ends the transactions that killed programs of this name left open. Call it when a document is
 * locked. The server would keep such transactions, and the locks on what they wrote, for a minute. A program that was
 * only suspended runs its transaction again. This needs no privilege, since a user may end its own sessions.
 */
export function createAbandonedTransactionEnder(client: MongoClient, appName: string, logger: Logger): () => void {
  let checkedAtMs = Number.NEGATIVE_INFINITY;

  async function endAbandoned(): Promise<void> {
    const admin = client.db("admin", { readConcern: new ReadConcern("local") });
    const isAbandoned = {
      type: "idleSession",
      appName,
      "transaction.timeInactiveMicros": { $gt: abandonedMs * 1_000 },
    };
    const found = await admin
      // Session ids are sent back as they came.
      .aggregate<Document>([{ $currentOp: { idleSessions: true } }, { $match: isAbandoned }], { promoteBuffers: false })
      .toArray();
    if (found.length === 0) return;
    await admin.command({ killSessions: found.map(({ lsid }) => ({ id: lsid.id })) });
    logger.warn({ transactions: found.length }, "ended transactions that a killed program left open");
  }

  return () => {
    if (performance.now() - checkedAtMs < checkEveryMs) return;
    checkedAtMs = performance.now();
    endAbandoned().catch((error: unknown) => {
      logger.warn({ err: error }, "failed to look for transactions that a killed program left open");
    });
  };
}
