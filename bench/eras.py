#!/usr/bin/env python3
"""What an operation costs the gateway in each era of the protocol: calls (32 clients) and lists of 500 tools (8 clients),
by clients of both eras, to servers of both. Eras take turns in every round, since machines are noisy; the best of
each counts.

  bench/eras.py [--rounds 3] [--seconds 3]      in the project's root; prints a table
"""
import argparse, json, os, socket, subprocess, tempfile, time, urllib.request
from pathlib import Path

GATEWAY_CPU, OTHERS_CPU = '0', '1'
TARGET = Path('target/release')


def spawn(cpu, *command, **options):
    return subprocess.Popen(['taskset', '-c', cpu, *map(str, command)], **options)


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {'Content-Type': 'application/json'})
    return urllib.request.urlopen(request, timeout=30).read()


def start_gateway(folder, port):
    environment = {'PORT': str(port), 'RUST_LOG': 'error', 'HOME': folder, 'PATH': os.environ['PATH']}
    gateway = spawn(GATEWAY_CPU, (TARGET / 'toolgate').resolve(), 'start', cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    for _ in range(200):
        try:
            urllib.request.urlopen(f'http://127.0.0.1:{port}/health', timeout=1)
            return gateway
        except OSError:
            time.sleep(0.05)
    raise SystemExit('the gateway does not answer')


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument('--rounds', type=int, default=3)
    arguments.add_argument('--seconds', type=float, default=3)
    options = arguments.parse_args()
    subprocess.run(['cargo', 'build', '--quiet', '--release', '--locked', '-p', 'toolgate-bench', '-p', 'toolgate'], check=True)
    best, running = {}, []
    try:
        for server in ('legacy', 'modern'):
            with tempfile.TemporaryDirectory() as folder:
                port = free_port()
                gateway = start_gateway(folder, port)
                running.append(gateway)
                for number in range(10):
                    upstream = spawn(OTHERS_CPU, TARGET / 'bench-upstream', '--era', server, stdout=subprocess.PIPE, text=True)
                    running.append(upstream)
                    url = upstream.stdout.readline().strip()
                    post(f'http://127.0.0.1:{port}/api/v0/servers', {'name': f'up{number}', 'transport': 'streamable_http', 'url': url})
                for _ in range(options.rounds):
                    for work, clients in (('call', 32), ('list', 8)):
                        for client in ('legacy', 'modern'):
                            load = spawn(OTHERS_CPU, TARGET / 'bench-load', '--address', f'127.0.0.1:{port}', '--pid', gateway.pid,
                                         '--era', client, '--work', work, '--clients', clients, '--seconds', options.seconds,
                                         stdout=subprocess.PIPE, text=True)
                            seen = json.loads(load.communicate()[0])
                            key = (work, client, server)
                            best[key] = min(best.get(key, seen), seen, key=lambda it: it['cpu_us'])
                while running:
                    process = running.pop()
                    process.terminate()
                    process.wait()
    finally:
        for process in running:
            process.kill()
    print('| work | client | server | CPU µs | × legacy client | p50 µs |\n|---|---|---|---|---|---|')
    for (work, client, server), seen in sorted(best.items()):
        ratio = seen['cpu_us'] / best[work, 'legacy', server]['cpu_us']
        print(f"| {work} | {client} | {server} | {seen['cpu_us']:.1f} | {ratio:.2f} | {seen['p50_us']:.0f} |")


main()
