"""Runs a command on a terminal and draws what it printed as a moving picture, in the time that it took.

    docs/record.py PICTURE COMMAND [ARGUMENT …]

The picture is an SVG without a script. Lines appear when the command printed them, the end stays for some seconds, and it begins
again. Who does not want things to move, or cannot show it, sees the end. A command that fails, or steers the terminal, is not drawn.
"""

import fcntl
import html
import os
import pty
import struct
import sys
import termios
import time

COLUMNS, ROWS = 100, 28
CHARACTER, LINE, MARGIN = 8.0, 18, 14
REST = 8.0


def record(command):
    """The lines that the command prints on a terminal, each with the seconds after which it was whole."""
    begun = time.monotonic()
    process, terminal = pty.fork()
    if process == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.execvp(command[0], command)
    lines, rest = [], b""
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:
            # What a terminal without a process says.
            break
        if not read:
            break
        *whole, rest = (rest + read).split(b"\n")
        lines += [(time.monotonic() - begun, line.rstrip(b"\r").decode()) for line in whole]
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code != 0 or rest:
        sys.exit(f"the command ended with {code}, and the last line is {rest.decode()!r}")
    if any(ord(character) < 32 for _, line in lines for character in line):
        sys.exit("the command steers the terminal, which is not drawn")
    return lines, time.monotonic() - begun


def folded(lines):
    """Lines that are too long for the terminal go on in the next one."""
    for at, line in lines:
        for start in range(0, max(len(line), 1), COLUMNS):
            yield at, line[start : start + COLUMNS]


def draw(shown, lines, took):
    """The picture: one clip that grows line by line, and one group that moves up once the window is full."""
    lines = [(0.0, f"$ {shown}"), *folded(lines)]
    total = took + REST
    times, heights, moves = [], [], []
    for count, (at, _) in enumerate(lines, start=1):
        if times and at == times[-1]:
            times.pop(), heights.pop(), moves.pop()
        times.append(at)
        heights.append(count * LINE)
        moves.append(-max(0, count - ROWS) * LINE)
    keys = ";".join(f"{at / total:.5f}" for at in times)
    time_of = f'dur="{total:.2f}s" calcMode="discrete" repeatCount="indefinite" keyTimes="{keys}"'
    width, height = COLUMNS * CHARACTER + 2 * MARGIN, ROWS * LINE + 2 * MARGIN
    texts = "\n".join(
        f'<text y="{row * LINE + 13}">{html.escape(line)}</text>' for row, (_, line) in enumerate(lines) if line
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" width="{width:g}" height="{height}" role="img">
<title>{html.escape(shown)}, in {took:.0f} seconds</title>
<style>text {{ font: 13px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d6deeb; white-space: pre }}</style>
<rect width="100%" height="100%" rx="8" fill="#10151d"/>
<svg x="{MARGIN}" y="{MARGIN}" width="{width - 2 * MARGIN:g}" height="{ROWS * LINE}" overflow="hidden">
<clipPath id="printed"><rect width="100%" height="{heights[-1]}">
<animate attributeName="height" {time_of} values="{";".join(map(str, heights))}"/>
</rect></clipPath>
<g transform="translate(0 {moves[-1]})">
<animateTransform attributeName="transform" type="translate" {time_of} values="{";".join(f"0 {move}" for move in moves)}"/>
<g clip-path="url(#printed)" xml:space="preserve">
{texts}
</g></g></svg></svg>
"""


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    picture, command = sys.argv[1], sys.argv[2:]
    lines, took = record(command)
    shown = " ".join([os.path.basename(command[0]), *command[1:]])
    with open(picture, "w", encoding="utf-8") as file:
        file.write(draw(shown, lines, took))


if __name__ == "__main__":
    main()
