import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import type { imageTransactions } from "./images.sqlite.transactions.ts";
import type { Images } from "./images.ts";
import { type ImageRow, type queries, selectImages, toImageView } from "./store.sqlite.queries.ts";

export function createImages({ read, query, write }: SqliteDatabase<typeof imageTransactions, typeof queries>): Images {
  return {
    list: query.listImages,
    count: query.countImages,
    create: write.createImage,
    createDefault: write.createDefaultImage,
    update: write.updateImage,
    delete: write.deleteImage,

    async find(imageId, workspaceId) {
      const row = read.get<ImageRow>(`${selectImages} WHERE id = ? AND workspace_id IN (?, '')`, imageId, workspaceId);
      return row && toImageView(row);
    },

    async findByName(name, workspaceId, tag) {
      const find = (workspaceId: string) =>
        read.all<ImageRow>(
          `${selectImages} WHERE workspace_id = ? AND name = ? AND tag = coalesce(?, tag) LIMIT 2`,
          workspaceId,
          name,
          tag ?? null,
        );
      const own = find(workspaceId);
      return (own.length > 0 ? own : find("")).map(toImageView);
    },
  };
}
