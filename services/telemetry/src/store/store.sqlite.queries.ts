import { auditQueries } from "./audit.sqlite.queries.ts";
import { chunkQueries } from "./chunks.sqlite.queries.ts";

export const queries = { ...auditQueries, ...chunkQueries };
