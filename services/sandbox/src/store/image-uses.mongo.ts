import type { Db } from "@sandgate/kit/storage/mongo";
import type { ImageUses } from "./image-uses.ts";

interface ImageUseDocument {
  /** A name that it has on the engine. */
  _id: string;
  usedAt: Date;
}

export function createImageUses(db: Db): ImageUses {
  const uses = db.collection<ImageUseDocument>("image_uses");
  return {
    async record({ name, at }) {
      await uses.updateOne({ _id: name }, { $max: { usedAt: at } }, { upsert: true });
    },
    async list() {
      const found = await uses.find().sort({ _id: 1 }).toArray();
      return found.map(({ _id, usedAt }) => ({ name: _id, at: usedAt }));
    },
    async forget(names) {
      await uses.deleteMany({ _id: { $in: [...names] } });
    },
  };
}
