import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const execute = promisify(execFile);

export interface TestCertificate {
  /** Files in PEM. */
  readonly certFile: string;
  readonly keyFile: string;
}

/** A certificate authority of a test's own. */
export interface TestAuthority {
  /** Its certificate, in PEM. */
  readonly caFile: string;
  /** Signs a certificate for these names and addresses ("DNS:workspace", "IP:127.0.0.1"); `name` names its files. */
  issue(name: string, subjects: readonly string[]): Promise<TestCertificate>;
}

/** Throws unless there is openssl. For `requireServer("openssl", …)`. */
export async function probeOpenssl(): Promise<void> {
  await execute("openssl", ["version"]).catch((cause: unknown) => {
    throw new Error("openssl was not found (Debian's package openssl)", { cause });
  });
}

/** Makes an authority whose files, and those of its certificates, are in the folder. */
export async function makeAuthority(folder: string, name: string): Promise<TestAuthority> {
  const openssl = (...args: string[]) => execute("openssl", args, { cwd: folder });
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"];
  await openssl(
    "req",
    "-x509",
    ...key,
    "-subj",
    `/CN=${name}`,
    "-days",
    "2",
    "-keyout",
    `${name}.key`,
    "-out",
    `${name}.pem`,
  );
  return {
    caFile: join(folder, `${name}.pem`),
    async issue(of, subjects) {
      const [request, extensions] = [`${of}.csr`, `${of}.ext`];
      await writeFile(join(folder, extensions), `subjectAltName=${subjects.join(",")}\n`);
      await openssl("req", "-new", ...key, "-subj", `/CN=${of}`, "-keyout", `${of}.key`, "-out", request);
      const by = ["-CA", `${name}.pem`, "-CAkey", `${name}.key`, "-CAcreateserial"];
      await openssl("x509", "-req", "-in", request, ...by, "-days", "2", "-extfile", extensions, "-out", `${of}.pem`);
      return { certFile: join(folder, `${of}.pem`), keyFile: join(folder, `${of}.key`) };
    },
  };
}

/** Puts the files of a certificate in the place of another's, as a renewal does. */
export async function replaceCertificate(old: TestCertificate, by: TestCertificate): Promise<void> {
  for (const file of ["keyFile", "certFile"] as const) await writeFile(old[file], await readFile(by[file]));
}
