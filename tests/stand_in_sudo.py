"""sudo for lab hosts, which may have none: the real one where this machine has it, else one that talks alike.

`SUDO` is a script for a host's shell that lets the account `op` become root, with the password on its
standard input, or without one where that is empty.
"""

_PROGRAM = r"""#!/usr/local/libexec/rootly -I
import os, sys
words, prompt, ask, never = sys.argv[1:], "[sudo] password: ", False, False
while words and words[0].startswith("-"):
    word = words.pop(0)
    ask, never = ask or word == "-S", never or word == "-n"
    if word == "-p":
        prompt = words.pop(0)
def line():
    read = b""
    while not read.endswith(b"\n"):
        one = os.read(0, 1)
        if not one:
            break
        read += one
    return read[:-1]
wanted = open("/etc/sudo-password", "rb").read()
if wanted:
    if never or not ask:
        sys.exit("sudo: a password is required")
    for turn in range(3):
        sys.stderr.write(prompt)
        sys.stderr.flush()
        if line() == wanted:
            break
        sys.stderr.write("Sorry, try again.\n")
    else:
        sys.exit("sudo: 3 incorrect password attempts")
os.setgroups([0])
os.setgid(0)
os.setuid(0)
os.environ.update(HOME="/root", USER="root", LOGNAME="root")
os.execvp(words[0], words)
"""

SUDO = f"""set -e
password=$(cat; echo .); password=${{password%.}}
if command -v sudo >/dev/null; then
  rule="op ALL=(ALL) ALL"
  if [ -z "$password" ]; then rule="op ALL=(ALL) NOPASSWD: ALL"; else echo "op:$password" | chpasswd; fi
  echo "$rule" > /etc/sudoers.d/op
  chmod 440 /etc/sudoers.d/op
else
  mkdir -p /usr/local/libexec
  cp "$(readlink -f "$(command -v python3)")" /usr/local/libexec/rootly
  chmod 4755 /usr/local/libexec/rootly
  printf %s "$password" > /etc/sudo-password
  chmod 600 /etc/sudo-password
  cat > /usr/local/bin/sudo <<'END'
{_PROGRAM}END
  chmod 755 /usr/local/bin/sudo
fi
"""
