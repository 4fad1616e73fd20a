# Runs pinfold on a terminal of its own, and answers its questions there. Prints what the terminal showed; what the command
# itself writes goes to standard error of pinfold and with it to a file.
#
# answers.py OUTPUT ANSWERS ARGV...   answers, one per question: yes, no, guess (a wrong word), bare (no word), none, kill (end
#                                     pinfold), after:FILE:ANSWER (when FILE exists), late (yes, after a second of looking on)
# With - for OUTPUT, the streams are the terminal too.
import os, pty, re, select, signal, sys, time

output, answers, argv = sys.argv[1], sys.argv[2].split(','), sys.argv[3:]
pid, master = pty.fork()
if pid == 0:
    # A terminal that nobody has open looks like its end to whoever reads the other side.
    os.dup2(0, 9)
    if output == '-':
        os.execv(argv[0], argv)
    out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.dup2(os.open('/dev/null', os.O_RDONLY), 0)
    os.execv(argv[0], argv)
shown, asked = b'', 0
question = re.compile(rb'type 1 (\w+)( unseen)?, or n for no: ')
deadline = time.time() + 50
while True:
    try:
        piece = os.read(master, 65536)
    except OSError:
        piece = b''
    if not piece:
        break
    shown += piece
    while (found := question.search(shown, asked)):
        asked = found.end()
        answer = answers.pop(0) if answers else 'no'
        if answer.startswith('after:'):
            _, name, answer = answer.split(':')
            while not os.path.exists(name) and time.time() < deadline:
                time.sleep(0.02)
        until = time.time() + 1
        while answer == 'late' and (left := until - time.time()) > 0:
            if select.select([master], [], [], left)[0]:
                shown += os.read(master, 65536)
        answer = 'yes' if answer == 'late' else answer
        word = found.group(1).decode()
        text = {'yes': f'1 {word}' + (found.group(2) or b'').decode(), 'no': 'n', 'guess': '1 zzzz', 'bare': '1'}.get(answer)
        if answer == 'kill':
            os.kill(pid, signal.SIGKILL)
        elif text is not None:
            os.write(master, text.encode() + b'\n')
_, status = os.waitpid(pid, 0)
sys.stdout.buffer.write(shown.replace(b'\r', b''))
sys.exit(0)
