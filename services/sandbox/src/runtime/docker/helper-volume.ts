import { randomUUID } from "node:crypto";
import { buffer } from "node:stream/consumers";
import { installationLabels, installationSelector } from "@sandgate/container-labels";
import { callEngine, type Engine, readInfo } from "@sandgate/docker-engine/client";
import { ignoreStatus, statusOf } from "@sandgate/docker-engine/errors";
import { newId } from "@sandgate/kit/base/ids";
import { pack } from "tar-stream";
import { type HelperProgram, readHelperProgram } from "../helper-program.ts";
import { helperFolder } from "../operations.ts";
import { isImageMissing } from "./image-check.ts";

/** Tells the volume from a later one of its name, which the engine makes for a container where it is gone. */
const madeLabel = "sandgate.io/made";
/** Of filling the volume, each after another process was quicker. */
const attempts = 10;

/** The volume that brings the helper into sandboxes, mounted for reading alone. */
export interface HelperVolume {
  /**
   * Its name, once it is filled, which takes a container of this image for a moment. The first call of a process fills
   * it, and so does one that finds it gone or made anew since; others cost a look. Throws the engine's error.
   */
  require(reference: string): Promise<string>;
}

/** The volume as it was when it was filled. */
interface Filled {
  name: string;
  /** The value of its label, or for one that the engine made its time, which a fill changes before Docker 23. */
  made: string | undefined;
}

/** A volume for each build of the helper, since running sandboxes keep theirs. */
export function createHelperVolume(o: { engine: Engine; installationId: string; prefix: string }): HelperVolume {
  const { engine, installationId } = o;
  let filling: Promise<Filled> | undefined;

  async function fill(reference: string): Promise<Filled> {
    const { Architecture: architecture } = await readInfo(engine);
    const program = await readHelperProgram(architecture);
    const name = `${o.prefix}${program.sha256.slice(0, 12)}`;
    await removeOthers(name);
    const labels = installationLabels(installationId);
    const made = { ...labels, [madeLabel]: newId() };
    await callEngine((abortSignal) => engine.createVolume({ Name: name, Labels: made, abortSignal }));
    const archive = await archiveOf(program);
    for (let attempt = 1; ; attempt++) {
      const failure = await put(archive, { name, reference, labels });
      if (!failure) return { name, made: await findMade(name) };
      if (attempt === attempts) throw failure;
    }
  }

  /**
   * Unpacks the archive by a container that has the volume and never runs. It has it at a path that no image's links can
   * lead elsewhere, since nobody knows it before. The container's name is known, so one that a crash left is used and
   * removed. Answers why it failed where another process may have removed that container meanwhile.
   */
  async function put(
    archive: Buffer,
    { name, reference, labels }: { name: string; reference: string; labels: Record<string, string> },
  ): Promise<Error | undefined> {
    const container = engine.getContainer(`${name}-fill`);
    await ignoreStatus(
      [409],
      callEngine((abortSignal) =>
        engine.createContainer({
          name: `${name}-fill`,
          Image: reference,
          Labels: labels,
          Entrypoint: [`${helperFolder}/helper`],
          NetworkDisabled: true,
          HostConfig: { Mounts: [{ ...helperMount(name, { readOnly: false }), Target: `/${randomUUID()}` }] },
          abortSignal,
        }),
      ),
    );
    try {
      const { Mounts: mounts } = await callEngine((abortSignal) => container.inspect({ abortSignal }));
      const path = mounts.find((mount) => mount.Name === name)?.Destination;
      if (path === undefined) throw new Error(`the container ${name}-fill lacks the volume that it should fill`);
      // Over one that is there, since a crash may have cut it.
      await callEngine((abortSignal) => container.putArchive(archive, { path, abortSignal }));
      return undefined;
    } catch (error) {
      // 500: its files went while they were unpacked.
      if (error instanceof Error && [404, 500].includes(statusOf(error) ?? 0)) return error;
      throw error;
    } finally {
      await ignoreStatus(
        [404, 409],
        callEngine((abortSignal) => container.remove({ force: true, v: true, abortSignal })),
      );
    }
  }

  /** The engine keeps those that sandboxes use. */
  async function removeOthers(name: string): Promise<void> {
    const filters = { label: [installationSelector(installationId)] };
    const { Volumes: volumes } = await callEngine((abortSignal) => engine.listVolumes({ filters, abortSignal }));
    for (const { Name: other } of volumes ?? []) {
      if (other === name) continue;
      await ignoreStatus(
        [404, 409],
        callEngine((abortSignal) => engine.getVolume(other).remove({ abortSignal })),
      );
    }
  }

  /** Undefined: there is no such volume. */
  async function findMade(name: string): Promise<string | undefined> {
    // The client's types lack the time.
    const inspecting: Promise<{ Labels: Record<string, string> | null; CreatedAt?: string }> = callEngine(
      (abortSignal) => engine.getVolume(name).inspect({ abortSignal }),
    );
    const volume = await ignoreStatus([404], inspecting);
    return volume?.Labels?.[madeLabel] ?? volume?.CreatedAt;
  }

  /** Undefined: that call's image is gone, which says nothing of another's. */
  async function findFilled(by: Promise<Filled>): Promise<Filled | undefined> {
    const filled = await by.catch((error: unknown) => {
      if (!isImageMissing(error)) throw error;
    });
    const made = filled && (await findMade(filled.name));
    return made !== undefined && made === filled?.made ? filled : undefined;
  }

  return {
    async require(reference) {
      while (filling) {
        const by = filling;
        const filled = await findFilled(by);
        if (filled) return filled.name;
        if (filling === by) filling = undefined;
      }
      const own = fill(reference);
      filling = own;
      try {
        return (await own).name;
      } catch (error) {
        if (filling === own) filling = undefined;
        throw error;
      }
    },
  };
}

/** How a container has the volume. Nothing that its image has at the path is copied into it. */
export function helperMount(name: string, o: { readOnly: boolean }) {
  return {
    Type: "volume" as const,
    Source: name,
    Target: helperFolder,
    ReadOnly: o.readOnly,
    // The client's types want all three.
    VolumeOptions: { NoCopy: true, Labels: {}, DriverConfig: { Name: "local", Options: {} } },
  };
}

function archiveOf({ bytes }: HelperProgram): Promise<Buffer> {
  const archive = pack();
  archive.entry({ name: "helper", mode: 0o555, size: bytes.length }, bytes);
  archive.finalize();
  return buffer(archive);
}
