import type { Preview } from "../domain/previews.ts";
import type { Previews } from "./previews.ts";
import type { Database } from "./store.sqlite.ts";

interface Row {
  id: string;
  sandbox_id: string;
  workspace_id: string;
  label: string;
  token_hash: Uint8Array;
  port: number;
  public: number;
  host_header: Preview["hostHeader"];
  created_by: string;
  created_at: number;
  expires_at: number;
}

const select = `SELECT id, sandbox_id, workspace_id, label, token_hash, port, public, host_header, created_by, created_at,
  expires_at FROM previews`;

function toPreview(row: Row): Preview {
  return {
    id: row.id,
    sandboxId: row.sandbox_id,
    workspaceId: row.workspace_id,
    label: row.label,
    tokenHash: row.token_hash,
    port: row.port,
    public: row.public === 1,
    hostHeader: row.host_header,
    createdBy: row.created_by,
    createdAt: new Date(row.created_at),
    expiresAt: new Date(row.expires_at),
  };
}

export function createPreviews({ read, remember, write }: Database): Previews {
  const one = (where: string, parameter: string): Preview | undefined => {
    const row = read.get<Row>(`${select} WHERE ${where}`, parameter);
    return row && toPreview(row);
  };
  // Each connection to a server reads it.
  const byId = remember((id) => one("id = ?", id));
  return {
    create: write.createPreview,
    get: async (id) => byId(id),
    findByLabel: async (label) => one("label = ?", label),
    async list(sandboxId) {
      return read.all<Row>(`${select} WHERE sandbox_id = ? ORDER BY created_at, id`, sandboxId).map(toPreview);
    },
    delete: write.deletePreview,
    deleteOfUser: write.deletePreviewsOfUser,
    createLink: write.createPreviewLink,
    takeLink: write.takePreviewLink,
  };
}
