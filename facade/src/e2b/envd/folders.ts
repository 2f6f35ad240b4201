import { posix } from "node:path";
import type { CallOptions } from "@connectrpc/connect";
import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import { hourMs } from "@sandgate/kit/base/time";
import { LoadingCache } from "../../pipeline/admission/loading-cache.ts";
import type { Clients } from "../../pipeline/base/clients.ts";
import { present } from "../../pipeline/messages/contract.ts";

/** Where programs start, and where paths that are not absolute do. */
export interface Folders {
  /** The image's folder, or where that is `/`, the home of this user. Empty: the image's user. */
  startOf(sandbox: string, user: string, call: CallOptions): Promise<string>;
  /** Throws VALIDATION_ERROR for a user that the sandbox doesn't have, and CONFLICT for one that files can't be of. */
  requireUser(sandbox: string, user: string, call: CallOptions): Promise<void>;
  /** A path that a program gave, absolute: `~` and what is relative begin at that folder. */
  resolve(sandbox: string, user: string, path: string, call: CallOptions): Promise<string>;
}

/** What never changes in a sandbox. */
interface Image {
  folder: string;
  uid: number;
}

/** The user of E2B's own images. */
export const usualUser = "user";
/** What is read of /etc/passwd. */
const maxUsersBytes = 256 * 1024;

export function createFolders({ files }: Pick<Clients, "files">): Folders {
  const images = new LoadingCache<Image>({ maxAgeMs: hourMs });

  async function findImage(sandbox: string, call: CallOptions): Promise<Image> {
    const describe = async (path: string) =>
      present((await files.getEntry({ sandbox, path: Buffer.from(path), follow: true }, call)).entry);
    const [folder, helper] = await Promise.all([describe("."), describe("/proc/self")]);
    return { folder: posix.resolve("/", Buffer.from(folder.path).toString()), uid: helper.uid };
  }

  async function findHome(sandbox: string, user: string, uid: number, call: CallOptions): Promise<string> {
    const users = await listUsers(sandbox, call);
    const entry = users.find(([name]) => user !== "" && name === user) ?? users.find((each) => each[2] === String(uid));
    const home = entry?.[5];
    return home?.startsWith("/") ? home : "/";
  }

  /** The fields of each line of /etc/passwd. */
  async function listUsers(sandbox: string, call: CallOptions): Promise<string[][]> {
    const range = { start: 0n, length: BigInt(maxUsersBytes) };
    const chunks: Uint8Array[] = [];
    try {
      for await (const { part } of files.readFile({ sandbox, path: Buffer.from("/etc/passwd"), range }, call)) {
        if (part.case === "data") chunks.push(part.value);
      }
    } catch (error) {
      // An image needs to have no users.
      const isOfFile =
        error instanceof DomainError && (error.reason === "NOT_FOUND" || error.errno !== undefined || error.violations);
      if (!isOfFile) throw error;
    }
    const lines = Buffer.concat(chunks).toString().split("\n");
    return lines.map((line) => line.split(":"));
  }

  const folders: Folders = {
    async requireUser(sandbox, user, call) {
      // The one of E2B's own images, and the image's.
      if (user === "" || user === usualUser) return;
      const { uid } = await images.get(sandbox, () => findImage(sandbox, call));
      const entry = (await listUsers(sandbox, call)).find(([name]) => name === user);
      if (!entry && user !== String(uid)) throw invalid("query.username", "the sandbox has no such user");
      if (entry && entry[2] !== String(uid)) {
        throw new DomainError("CONFLICT", "Files are read and written as the image's own user.", {
          errno: "EPERM",
          hint: "Leave the user out, and change the owner with a command.",
        });
      }
    },

    async startOf(sandbox, user, call) {
      const { folder, uid } = await images.get(sandbox, () => findImage(sandbox, call));
      return folder === "/" ? findHome(sandbox, user, uid, call) : folder;
    },

    async resolve(sandbox, user, path, call) {
      if (path.startsWith("/")) return path;
      const start = await folders.startOf(sandbox, user, call);
      const rest = path === "~" ? "" : path.startsWith("~/") ? path.slice(2) : path;
      return rest === "" || rest === "." ? start : `${start === "/" ? "" : start}/${rest}`;
    },
  };
  return folders;
}
