// Imported by each process of the unit tests, and so by its threads (vitest.config.ts). A statement of a store that no
// index answers throws where it is prepared, so that whichever test needs it fails.
import { DatabaseSync } from "node:sqlite";

/** Tables that stay small whatever tenants do, and why. */
const smallTables: Readonly<Record<string, string>> = {
  consumers: "one for each consumer in the code",
  identity: "one, of the event bus",
  image_uses: "one for each image that the engine has, which its cache limits",
  installation: "one",
  keys: "those of session and refresh tokens: outdated ones are removed",
  kit_leases: "one for each shard and each task of the code",
  log_total: "one",
  verified_layer_count: "one",
};
/** Indexes of the few rows of a table that are read as a whole. */
const smallIndexes: Readonly<Record<string, string>> = {
  guards_open: "workspaces that are being purged",
  guards_open_purges: "workspaces that are being purged",
};

const { prepare } = DatabaseSync.prototype;
DatabaseSync.prototype.prepare = function (sql, ...options) {
  if (isOfStore(new Error().stack ?? "")) {
    const plan = prepare.call(this, `EXPLAIN QUERY PLAN ${sql}`).all();
    const problem = findProblem(plan.map(({ detail }) => String(detail)));
    if (problem !== undefined) throw new Error(`no index answers this statement (${problem}): ${sql}`);
  }
  return prepare.call(this, sql, ...options);
};

/** True for what the code prepares by the kit's connection. Tests look into databases as they like. */
function isOfStore(stack: string): boolean {
  const callers = stack.slice(stack.lastIndexOf("/sqlite-connection.ts")).split("\n")[1];
  return callers !== undefined && /\/src\//.test(callers) && !/\.(test|fixture)\.ts/.test(callers);
}

/** What of a plan goes through a whole table, or sorts rows; none where that is small. */
function findProblem(plan: readonly string[]): string | undefined {
  const isLarge = (step: string) => {
    const [, table = "", index = ""] = /^(?:SCAN|SEARCH) (\S+)(?:.* INDEX (\S+))?/.exec(step) ?? [];
    // What a function or a subquery returns counts where its rows come from.
    const isDerived = /VIRTUAL TABLE|^SCAN (\(|CONSTANT)/.test(step);
    return table !== "" && !isDerived && !(table in smallTables) && !(index in smallIndexes);
  };
  return plan.find(
    (step) =>
      step.includes("AUTOMATIC") ||
      (step.startsWith("SCAN") && isLarge(step)) ||
      (step.startsWith("USE TEMP B-TREE") && plan.some(isLarge)),
  );
}
