import { posix } from "node:path";
import type { CallOptions } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { LoadingCache } from "../../pipeline/admission/loading-cache.ts";
import type { Clients } from "../../pipeline/base/clients.ts";
import { isAboutUser } from "../errors.ts";

/** Who acts in a sandbox, and where a path leads for them. */
export interface Place {
  /** As the operations take it. Empty: the image's. */
  user: string;
  /** Absolute, and without `.` and `..`. */
  path: string;
}

/** Where programs start, and where paths that are not absolute do. */
export interface Folders {
  /**
   * The user whom a program names, and a path that it gives: `~` and what is relative begin at the image's folder, or
   * where that is `/`, at the user's home. Throws VALIDATION_ERROR for a user that the sandbox doesn't have, and CONFLICT
   * for one that can't be used.
   */
  find(sandbox: string, user: string, path: string, call: CallOptions): Promise<Place>;
}

interface Start {
  user: string;
  folder: string;
}

/** The user of E2B's own images, who where there is none is the image's. */
const usualUser = "user";
/** A command may add a user, or move a home. */
const startAgeMs = 5_000;

export function createFolders({ files }: Pick<Clients, "files">): Folders {
  const starts = new LoadingCache<Start>({ maxAgeMs: startAgeMs });

  async function findStart(sandbox: string, user: string, call: CallOptions): Promise<Start> {
    try {
      const { home, folder } = await files.getUser({ sandbox, user }, call);
      const start = folder === "/" ? home : folder;
      return { user, folder: start.startsWith("/") ? start : "/" };
    } catch (error) {
      const isMissing = error instanceof DomainError && isAboutUser(error);
      if (user !== usualUser || !isMissing) throw error;
      return findStart(sandbox, "", call);
    }
  }

  return {
    async find(sandbox, named, given, call) {
      const { user, folder } = await starts.get(`${sandbox} ${named}`, () => findStart(sandbox, named, call));
      const rest = given === "~" ? "" : given.startsWith("~/") ? given.slice(2) : given;
      return { user, path: posix.resolve(folder, rest) };
    },
  };
}
