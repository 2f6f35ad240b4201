import { pipeline, Readable } from "node:stream";
import { Busboy } from "@fastify/busboy";
import { DomainError, invalid } from "@sandgate/kit/base/domain-error";

const maxParts = 1_000;

/** A file that was written. */
export interface Written {
  name: string;
  type: "file";
  path: string;
}

/**
 * Writes the files of a form with `write`, one after the other. The name of each is its path, unless there is one in the
 * query. Throws VALIDATION_ERROR for what isn't a whole form with a file in it, or what `write` throws.
 */
export async function writeForm(
  type: string,
  chunks: AsyncIterable<Uint8Array>,
  path: string | undefined,
  write: (path: string, content: AsyncIterable<Uint8Array>) => Promise<Written>,
): Promise<Written[]> {
  const written: Written[] = [];
  const contents: Readable[] = [];
  let writing: Promise<unknown> = Promise.resolve();
  /** Of those that are there as a whole. */
  let writingWhole = writing;
  const form = openForm(type);
  // Otherwise the form would end a file that is cut off as if it were whole.
  form.on("error", (error: Error) => {
    for (const content of contents) content.destroy(error);
  });
  form.on("file", (_field, content, name = "") => {
    // A copy, since a part of a string keeps all of it, and what surrounds the name may be long.
    const given = path ?? Buffer.from(name).toString();
    contents.push(content);
    // It may fail before anybody reads it.
    content.on("error", () => undefined);
    writingWhole = writing;
    writing = writing.then(async () => void written.push(await write(given, content)));
    // What is left of one that could not be written.
    writing.catch((error: Error) => form.destroy(error));
  });
  for (const limit of ["partsLimit", "filesLimit", "fieldsLimit"]) {
    form.on(limit, () => form.destroy(invalid("body", `must have ${maxParts} parts or fewer`)));
  }
  // A part of any size keeps the whole chunk that it came in, so no more of them are read than can be written.
  async function* paced(): AsyncGenerator<Uint8Array> {
    for await (const chunk of chunks) {
      yield chunk;
      await writingWhole;
    }
  }
  await new Promise<void>((done, fail) => {
    pipeline(Readable.from(paced()), form, (error) => (error ? fail(error) : done()));
  }).catch((error: unknown) => {
    throw error instanceof DomainError ? error : invalid("body", "must be a complete multipart/form-data body");
  });
  await writing;
  if (written.length === 0) throw invalid("body", "has no file");
  return written;
}

function openForm(type: string): InstanceType<typeof Busboy> {
  try {
    return new Busboy({
      headers: { "content-type": type },
      preservePath: true,
      // As E2B has it: a part of this name is a file, though it doesn't say what it is called.
      isPartAFile: (field, _type, name) => name !== undefined || field === "file",
      limits: { parts: maxParts, fieldSize: 1024, headerPairs: 100 },
    });
  } catch {
    throw invalid("header.content-type", "must name the boundary of the parts");
  }
}
