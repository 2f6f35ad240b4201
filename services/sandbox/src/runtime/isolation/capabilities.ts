/**
 * What root inside a container keeps: owning and reading its own files (package managers), dropping to another user
 * (su-exec, gosu, nginx's and postgres' entrypoints), signalling that user's processes, and ports below 1024. Of
 * Docker's own default set NET_RAW (forged packets, also at neighbours of the bridge), MKNOD, SYS_CHROOT, AUDIT_WRITE,
 * SETFCAP and FSETID are left out. All are in Pod Security's "baseline"; "restricted" allows NET_BIND_SERVICE alone.
 */
export const capabilities: readonly string[] = [
  "CHOWN",
  "DAC_OVERRIDE",
  "FOWNER",
  "KILL",
  "NET_BIND_SERVICE",
  "SETGID",
  "SETPCAP",
  "SETUID",
];
