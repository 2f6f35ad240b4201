import type { ImageUses } from "./image-uses.ts";
import type { Database } from "./store.sqlite.ts";

export function createImageUses({ read, write }: Database): ImageUses {
  return {
    record: write.recordImageUse,
    async list() {
      const rows = read.all<{ name: string; used_at: number }>("SELECT name, used_at FROM image_uses");
      return rows.map(({ name, used_at }) => ({ name, at: new Date(used_at) }));
    },
    forget: write.forgetImageUses,
  };
}
