#!/usr/bin/env python3
"""Compares what an operation costs the gateway. Since machines are noisy, all variants are in one run: they take turns
in every round, and the best of each counts. Calls are made by 32 clients; lists of 500 tools are read by 8.

  bench/compare.py eras  [--rounds 3] [--seconds 3]   clients of both eras of the protocol, to servers of both
  bench/compare.py modes [--rounds 3] [--seconds 3]   development mode, and enterprise mode with a client's token

Run it in the project's root; it builds what it needs and prints a table.
"""
import argparse, json, os, socket, subprocess, tempfile, time, urllib.request
from pathlib import Path

GATEWAY_CPU, OTHERS_CPU = '0', '1'
TARGET = Path('target/release')
WORKS = (('call', 32), ('list', 8))


class Gateway:
    """A gateway in its own folder, with ten servers of one era."""

    def __init__(self, era, mode):
        self.folder = tempfile.TemporaryDirectory()
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            self.address = '127.0.0.1:%d' % free.getsockname()[1]
        environment = {'PORT': self.address.split(':')[1], 'HOST': '127.0.0.1', 'SERVER_MODE': mode, 'RUST_LOG': 'error',
                       'HOME': self.folder.name, 'PATH': os.environ['PATH']}
        self.processes = [spawn(GATEWAY_CPU, (TARGET / 'toolgate').resolve(), 'start', cwd=self.folder.name, env=environment)]
        self.admin, self.client = None, []
        self.wait()
        if mode == 'enterprise':
            self.admin = self.post('/init', {})['admin_access_token']
            self.client = ['--token', self.post('/api/v0/clients', {'name': 'bench', 'allow_list': ['*']})['access_token']]
        for number in range(10):
            upstream = spawn(OTHERS_CPU, TARGET / 'bench-upstream', '--era', era)
            self.processes.append(upstream)
            url = upstream.stdout.readline().strip()
            self.post('/api/v0/servers', {'name': f'up{number}', 'transport': 'streamable_http', 'url': url})

    def wait(self):
        for _ in range(200):
            try:
                return urllib.request.urlopen(f'http://{self.address}/health', timeout=1)
            except OSError:
                time.sleep(0.05)
        raise SystemExit('the gateway does not answer')

    def post(self, path, body):
        headers = {'Authorization': f'Bearer {self.admin}'} if self.admin else {}
        request = urllib.request.Request(f'http://{self.address}{path}', json.dumps(body).encode(), headers)
        return json.load(urllib.request.urlopen(request, timeout=30))

    def measure(self, era, work, clients, seconds):
        load = spawn(OTHERS_CPU, TARGET / 'bench-load', '--address', self.address, '--pid', self.processes[0].pid, '--era', era,
                     '--work', work, '--clients', clients, '--seconds', seconds, *self.client)
        return json.loads(load.communicate()[0])

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()
        self.folder.cleanup()


def spawn(cpu, *command, **options):
    return subprocess.Popen(['taskset', '-c', cpu, *map(str, command)], stdout=subprocess.PIPE, text=True, **options)


def compare(variants, options):
    """Best figures by variant and work; a variant is a gateway and the era of its clients."""
    best = {}
    for _ in range(options.rounds):
        for work, clients in WORKS:
            for name, (gateway, era) in variants.items():
                seen = gateway.measure(era, work, clients, options.seconds)
                best[work, name] = min(best.get((work, name), seen), seen, key=lambda it: it['cpu_us'])
    return best


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument('what', choices=['eras', 'modes'])
    arguments.add_argument('--rounds', type=int, default=3)
    arguments.add_argument('--seconds', type=float, default=3)
    options = arguments.parse_args()
    subprocess.run(['cargo', 'build', '--quiet', '--release', '--locked', '-p', 'toolgate-bench', '-p', 'toolgate'], check=True)
    gateways = []
    try:
        if options.what == 'eras':
            gateways = [Gateway('legacy', 'development'), Gateway('modern', 'development')]
            variants = {f'{client} client, {server} server': (gateway, client)
                        for server, gateway in zip(('legacy', 'modern'), gateways) for client in ('legacy', 'modern')}
        else:
            gateways = [Gateway('legacy', 'development'), Gateway('legacy', 'enterprise')]
            variants = {'development': (gateways[0], 'legacy'), 'enterprise': (gateways[1], 'legacy')}
        best = compare(variants, options)
    finally:
        for gateway in gateways:
            gateway.stop()
    first = next(iter(variants))
    print(f'| work | variant | CPU µs | × {first} | p50 µs |\n|---|---|---|---|---|')
    for (work, name), seen in sorted(best.items()):
        print(f"| {work} | {name} | {seen['cpu_us']:.1f} | {seen['cpu_us'] / best[work, first]['cpu_us']:.2f} | {seen['p50_us']:.0f} |")


main()
