/**
 * Where the container engine is, in the form of `SANDGATE_RUNTIME`: what is set there, else what `DOCKER_HOST` names, else
 * Docker's usual socket.
 */
export function runtimeAddress(env: NodeJS.ProcessEnv): string {
  if (env.SANDGATE_RUNTIME) return env.SANDGATE_RUNTIME;
  return (env.DOCKER_HOST || "unix:///var/run/docker.sock").replace(/^(unix|tcp):\/\//, "docker://");
}
