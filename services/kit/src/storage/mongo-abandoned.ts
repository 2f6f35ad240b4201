import { type Document, type MongoClient, ReadConcern } from "mongodb";
import type { Logger } from "../base/logging.ts";

/** A transaction that has waited so long for its program's next step was left behind: ours take milliseconds. */
const abandonedMs = 3_000;
/** Between two looks. */
const pauseMs = 1_000;

/**
 * Ends the transactions that killed programs of this name left open, when it is called by who meets a locked document. The
 * server would keep them for a minute, and what they wrote locked. One of a program that was only held up runs again there.
 * A user may end its own sessions, so this needs no privilege.
 */
export function createAbandonedEnder(client: MongoClient, appName: string, logger: Logger): () => void {
  let lookedMs = Number.NEGATIVE_INFINITY;

  async function endAbandoned(): Promise<void> {
    const admin = client.db("admin", { readConcern: new ReadConcern("local") });
    const isAbandoned = {
      type: "idleSession",
      appName,
      "transaction.timeInactiveMicros": { $gt: abandonedMs * 1_000 },
    };
    const found = await admin
      // Ids of sessions go back as they came.
      .aggregate<Document>([{ $currentOp: { idleSessions: true } }, { $match: isAbandoned }], { promoteBuffers: false })
      .toArray();
    if (found.length === 0) return;
    await admin.command({ killSessions: found.map(({ lsid }) => ({ id: lsid.id })) });
    logger.warn({ transactions: found.length }, "transactions that a killed program left open were ended");
  }

  return () => {
    if (performance.now() - lookedMs < pauseMs) return;
    lookedMs = performance.now();
    endAbandoned().catch((error: unknown) => {
      logger.warn({ err: error }, "transactions that a killed program left open could not be looked for");
    });
  };
}
