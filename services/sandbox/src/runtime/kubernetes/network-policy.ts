import type { V1NetworkPolicy } from "@kubernetes/client-node";
import { installationLabels } from "@sandgate/container-labels";
import type { Destination, EgressPolicy } from "../isolation/egress.ts";
import { contains, toNetwork } from "../isolation/ipv4-network.ts";

export interface PodEgressPolicy extends EgressPolicy {
  /** Networks that no sandbox reaches, `address/bits`. */
  closed: readonly string[];
}

const smtpPort = 25;
const allPorts: readonly PortRange[] = [{ port: 1, endPort: 65_535 }];

interface PortRange {
  port: number;
  endPort: number;
}

/** What is open: a network except for some ranges of it, on these ports. */
interface Opening {
  cidr: string;
  except: readonly string[];
  tcp: readonly PortRange[];
  udp: readonly PortRange[];
}

/**
 * The rules of an installation's pods: nothing reaches them, and they reach only what is open outside. A policy can
 * only open, so what is closed is cut out of what would be opened.
 */
export function networkPolicyOf(installationId: string, namespace: string, policy: PodEgressPolicy): V1NetworkPolicy {
  const tcp = policy.smtp ? allPorts : withoutPort(allPorts, smtpPort);
  const outside: Opening = { cidr: "0.0.0.0/0", except: policy.closed, tcp, udp: allPorts };
  const allowed = policy.allow.map(({ network, port }): Opening => {
    const only = port === undefined ? undefined : [{ port, endPort: port }];
    return { cidr: network, except: [], tcp: only ?? tcp, udp: only ?? allPorts };
  });
  const openings = policy.deny.reduce(
    (open, denied) => open.flatMap((each) => close(each, denied)),
    [outside, ...allowed],
  );
  return {
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: { name: policyNameOf(installationId), namespace },
    spec: {
      podSelector: { matchLabels: installationLabels(installationId) },
      policyTypes: ["Ingress", "Egress"],
      ingress: [],
      egress: [
        {
          to: policy.nameservers.map((address) => ({ ipBlock: { cidr: `${address}/32` } })),
          ports: ["UDP", "TCP"].map((protocol) => ({ protocol, port: 53 })),
        },
        ...openings.map(({ cidr, except, ...ports }) => ({
          to: [{ ipBlock: { cidr, ...(except.length > 0 && { except: [...except] }) } }],
          ports: [...ports.tcp.map((range) => portOf("TCP", range)), ...ports.udp.map((range) => portOf("UDP", range))],
        })),
      ],
    },
  };
}

/** The policy's name, which tells installations that share a namespace apart. */
export function policyNameOf(installationId: string): string {
  return `sandgate-${installationId}`
    .toLowerCase()
    .replace(/[^a-z0-9.-]/g, "-")
    .slice(0, 253);
}

function portOf(protocol: string, { port, endPort }: PortRange) {
  return { protocol, port, ...(endPort > port && { endPort }) };
}

/** What is left open of an opening once a destination is closed. */
function close(open: Opening, { network, port }: Destination): Opening[] {
  const left = (range: Opening): Opening[] =>
    port === undefined ? [] : [{ ...range, tcp: withoutPort(range.tcp, port), udp: withoutPort(range.udp, port) }];
  const hasPorts = ({ tcp, udp }: Opening) => tcp.length + udp.length > 0;
  if (covers(network, open.cidr)) return left(open).filter(hasPorts);
  if (!covers(open.cidr, network) || open.except.some((range) => covers(range, network))) return [open];
  const within = open.except.filter((range) => covers(network, range));
  const around = { ...open, except: [...open.except.filter((range) => !within.includes(range)), network] };
  return [around, ...left({ ...open, cidr: network, except: within }).filter(hasPorts)];
}

/** Whether the network `inner` is the network `outer` or a part of it. */
function covers(outer: string, inner: string): boolean {
  return contains(toNetwork(outer), toNetwork(inner));
}

function withoutPort(ranges: readonly PortRange[], closed: number): PortRange[] {
  return ranges.flatMap(({ port, endPort }) =>
    [
      { port, endPort: Math.min(endPort, closed - 1) },
      { port: Math.max(port, closed + 1), endPort },
    ].filter((range) => range.port <= range.endPort && (range.port > closed || range.endPort < closed)),
  );
}
