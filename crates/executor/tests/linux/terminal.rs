//! A command on a terminal.

use super::*;
use pinfold_executor::{Size, Terminal};

const SIZE: Size = Size { rows: 40, columns: 100 };

fn on_terminal(world: &World, command: &str) -> Terminal {
    let spec = world.executor.resolve(&Request::new(command)).unwrap();
    world.executor.start_on_terminal(&spec, SIZE).unwrap()
}

fn read_until(terminal: &Terminal, text: &mut String, wanted: &str) {
    wait_for(wanted, || {
        if let Some(bytes) = terminal.read(Duration::from_millis(100)).unwrap() {
            text.push_str(&String::from_utf8_lossy(&bytes));
        }
        text.contains(wanted)
    });
}

/// B092: three streams that are a terminal, of the size that was said, and no controlling one.
#[test]
fn a_command_has_a_terminal_of_that_size() {
    everywhere(|world| {
        let script = "test -t 0 && test -t 1 && test -t 2 && echo terminal; stty size; echo $TERM; exit 3";
        let terminal = on_terminal(world, script);
        let mut text = String::new();
        while let Some(bytes) = terminal.read(Duration::from_secs(1)).unwrap() {
            text.push_str(&String::from_utf8_lossy(&bytes));
        }
        assert_eq!(text, "terminal\r\n40 100\r\nxterm\r\n", "{}", world.backend);
        assert_eq!(terminal.done().exit_code(), Some(3), "{}", world.backend);
    });
}

/// What is typed arrives, a new size is seen and told, and an interrupt reaches the command.
#[test]
fn keys_size_and_interrupt_arrive() {
    everywhere(|world| {
        let script = "trap 'echo size $(stty size)' WINCH; trap 'echo interrupted; exit 130' INT; echo ready; \
                      read line; echo \"got $line\"; while :; do sleep 0.02; done";
        let terminal = on_terminal(world, script);
        let mut text = String::new();
        read_until(&terminal, &mut text, "ready");
        assert_eq!(terminal.write(b"some words\r").unwrap(), 11);
        read_until(&terminal, &mut text, "got some words");
        terminal.resize(Size { rows: 5, columns: 60 }).unwrap();
        read_until(&terminal, &mut text, "size 5 60");
        terminal.interrupt();
        read_until(&terminal, &mut text, "interrupted");
        assert_eq!(terminal.done().exit_code(), Some(130), "{}: {text}", world.backend);
    });
}

/// A command that is withdrawn leaves nothing, and the terminal ends.
#[test]
fn a_withdrawn_terminal_ends() {
    for backend in CONFINED {
        let world = World::new(backend);
        let marker = marker();
        let terminal = on_terminal(&world, &format!("setsid sleep {marker} & sleep {marker}"));
        wait_for("a start", || sleepers(&marker) == 2);
        assert!(terminal.kill());
        assert!(terminal.done().aborted());
        assert_eq!(sleepers(&marker), 0, "{backend}");
        assert_eq!(terminal.read(Duration::ZERO).unwrap(), None);
    }
}
