"""The node process: signals, exit codes, no descendant left, and the last words of a failed command."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.trainer.base import processes
from slipway.trainer.diagnosis import stacks
from slipway.trainer.elastic.rendezvous_store import PORT_VARIABLE, connections
from slipway.trainer.node.agent import ADDRESS_VARIABLE, INDEX_VARIABLE, arguments
from slipway.trainer.node.process import BYTES, FILE_VARIABLE
from tests.conftest import Marked, until


def node(
    script: str, *, kind: str = "rank", termination_log: Path | None = None, **more: str
) -> "subprocess.Popen[str]":
    """A node that runs a Python script."""
    environment = {**os.environ, **({FILE_VARIABLE: str(termination_log)} if termination_log else {}), **more}
    command = [sys.executable, "-m", "slipway.trainer.node.process", kind, "", sys.executable, "-c", script]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def output_of(process: "subprocess.Popen[str]") -> str:
    return process.communicate()[0]


@pytest.fixture
def termination_log(tmp_path: Path) -> Path:
    """An empty termination log, as a container finds it."""
    file = tmp_path / "termination-log"
    file.touch()
    return file


def test_a_node_ends_with_the_exit_code_of_its_command(marked: Marked):
    failed = node("import sys; print('out'); sys.exit('the disk is full')")
    assert (output_of(failed), failed.returncode) == ("out\nthe disk is full\n", 1)
    assert node("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)").wait() == 128 + signal.SIGSEGV


def test_a_failed_command_leaves_its_last_words(termination_log: Path, marked: Marked):
    failed = node("import sys; print('out'); sys.exit('the disk is full')", termination_log=termination_log)
    assert output_of(failed) == "out\nthe disk is full\n" == termination_log.read_text()
    assert failed.returncode == 1


def test_the_last_words_are_as_many_as_kubernetes_keeps_and_are_text(termination_log: Path, marked: Marked):
    long = "import sys; sys.exit('é' * 5000 + '.')"
    assert len(output_of(node(long, termination_log=termination_log))) > 5000
    assert termination_log.read_text() == "é" * (BYTES // 2 - 1) + ".\n"


def test_a_command_that_succeeds_leaves_no_last_words(termination_log: Path, marked: Marked):
    assert output_of(node("print('done')", termination_log=termination_log)) == "done\n"
    assert termination_log.read_text() == ""


def test_processes_that_outlive_the_command_are_ended_and_do_not_delay_the_last_words(
    termination_log: Path, marked: Marked
):
    orphan = "import subprocess, sys; subprocess.Popen(['sleep', '600'], start_new_session=True); sys.exit('gone')"
    assert output_of(node(orphan, termination_log=termination_log)) == "gone\n" == termination_log.read_text()
    marked.until_gone()


def test_the_output_names_a_command_that_cannot_be_started(termination_log: Path):
    command = [sys.executable, "-m", "slipway.trainer.node.process", "rank", "", "no-such-command"]
    done = subprocess.run(
        command, env={**os.environ, FILE_VARIABLE: str(termination_log)}, capture_output=True, text=True
    )
    assert done.returncode == 127 and "no-such-command: cannot be started" in done.stderr


def test_the_last_words_of_a_stopped_rank_are_kept(termination_log: Path, marked: Marked):
    script = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit('saved step 7'));"
        "print('ready', flush=True); time.sleep(600)"
    )
    running = node(script, termination_log=termination_log)
    assert running.stdout
    assert until(running.stdout.readline, "the rank to run") == "ready\n"
    running.terminate()
    assert output_of(running) == "saved step 7\n" and termination_log.read_text() == "ready\nsaved step 7\n"


STOPS = "import os, signal; print('stopping', flush=True); os.kill(os.getpid(), signal.SIGSTOP); print('went on')"


def node_that_waits(seconds: float, kind: str) -> "subprocess.Popen[str]":
    """A node whose command stops itself, and that waits for it for so long."""
    program = (
        f"import sys; from slipway.trainer.node import process; process.LONGEST_SECONDS = {seconds}; "
        "sys.exit(process.main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, kind, "", sys.executable, "-c", STOPS]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_node_whose_supervisor_stands_still_dies_with_it(marked: Marked):
    stopped = node_that_waits(0.5, "supervisor")
    assert "its supervisor has stood still" in output_of(stopped) and stopped.returncode == -signal.SIGKILL
    marked.until_gone()


def test_a_supervisor_that_goes_on_in_time_is_left_alone(marked: Marked):
    stopped = node_that_waits(600, "supervisor")
    [command] = until(lambda: [pid for pid in processes.children(stopped.pid) if stacks.state(pid) == "T"], "the stop")
    os.kill(command, signal.SIGCONT)
    assert output_of(stopped) == "stopping\nwent on\n" and stopped.returncode == 0


@pytest.mark.parametrize("index", ["0", "1"])
def test_no_machine_hosts_the_rendezvous_and_each_gives_its_address(index: str):
    options = ["--rdzv-endpoint=job-1-store:29500", "--nnodes=2"]
    agent_arguments = arguments(options, {INDEX_VARIABLE: index, ADDRESS_VARIABLE: "10.0.0.2"})
    assert any("is_host=0" in argument for argument in agent_arguments)
    assert "--local-addr=10.0.0.2" in agent_arguments and agent_arguments[-1] == "--nnodes=2"


@pytest.mark.slow
def test_an_agent_ends_with_the_exit_code_and_the_words_of_the_rank_that_failed_first(
    termination_log: Path, marked: Marked
):
    rank = "import os, sys, time; time.sleep(600) if os.environ['RANK'] == '0' else sys.exit(print('no disk') or 42)"
    torchrun = ["-P", "-m", "slipway.trainer.node.agent", "--nnodes=1", "--nproc-per-node=2", "--max-restarts=0"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    rendezvous_store = store(port)
    alone = ["--rdzv-id=it", f"--rdzv-endpoint=127.0.0.1:{port}", "--shutdown-timeout=3", "--no-python"]
    environment = {FILE_VARIABLE: str(termination_log), INDEX_VARIABLE: "0", ADDRESS_VARIABLE: "127.0.0.1"}
    command = [sys.executable, "-m", "slipway.trainer.node.process", "agent", "", sys.executable, *torchrun, *alone]
    done = subprocess.run([*command, sys.executable, "-c", rank], env={**os.environ, **environment})
    assert done.returncode == 42
    assert "no disk\n" in termination_log.read_text()
    assert termination_log.read_text().endswith("trainer: rank 1 ended with exit code 42\n")
    assert rendezvous_store.wait(100) == 0, "the store ends when all have left"


def agent(index: int, port: int, termination_log: Path) -> "subprocess.Popen[bytes]":
    """One of two machines whose ranks run until they are stopped."""
    torchrun = ["-P", "-m", "slipway.trainer.node.agent", "--nnodes=2", "--nproc-per-node=1", "--max-restarts=0"]
    rendezvous = ["--rdzv-id=it", f"--rdzv-endpoint=127.0.0.1:{port}", "--shutdown-timeout=3", "--no-python"]
    termination_log.touch()
    environment = {
        FILE_VARIABLE: str(termination_log),
        INDEX_VARIABLE: str(index),
        ADDRESS_VARIABLE: "127.0.0.1",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    command = [
        sys.executable,
        "-m",
        "slipway.trainer.node.process",
        "agent",
        "",
        sys.executable,
        *torchrun,
        *rendezvous,
    ]
    return subprocess.Popen([*command, "sleep", "600"], env={**os.environ, **environment})


def store(port: int) -> "subprocess.Popen[bytes]":
    """The rendezvous store of both, as a pod runs it."""
    command = [sys.executable, "-P", "-m", "slipway.trainer.elastic.rendezvous_store"]
    return subprocess.Popen(command, env={**os.environ, PORT_VARIABLE: str(port)})


@pytest.mark.slow
def test_machines_that_lose_their_rendezvous_store_end_and_say_so(tmp_path: Path, marked: Marked):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    rendezvous_store, machines = store(port), [agent(index, port, tmp_path / str(index)) for index in (0, 1)]
    until(lambda: len([pid for pid in marked.pids() if name_of(pid) == "sleep"]) == 2, "both ranks to run")
    rendezvous_store.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        rendezvous_store.wait(3)  # whoever asks it to stop, it stays while somebody is there
    rendezvous_store.kill()
    for index, machine in enumerate(machines):
        assert machine.wait(100) == 1
        assert "did not connect, or lost their rendezvous store" in (tmp_path / str(index)).read_text()
    rendezvous_store.wait()


@pytest.mark.slow
def test_a_store_that_nobody_visits_ends_when_it_is_asked_to(tmp_path: Path, marked: Marked):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    rendezvous_store = store(port)
    until(lambda: _answers(port), "the store to serve")
    rendezvous_store.terminate()
    assert rendezvous_store.wait(100) == 0


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def test_only_connections_to_the_port_that_are_established_count():
    table = """  sl  local_address rem_address   st tx_queue
   0: 0100007F:733C 00000000:0000 0A 00000000:00000000
   1: 0100007F:733C 0100007F:A1B2 01 00000000:00000000
   2: 0100007F:A1B2 0100007F:733C 01 00000000:00000000
   3: 0100007F:733C 0100007F:A1B3 06 00000000:00000000
"""
    assert connections(0x733C, (table, "")) == 1


def name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path("/proc", str(pid), "comm").read_text().strip()
    return ""
