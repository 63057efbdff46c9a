/* Runs a program, counts the calls of the system with which it touches files, and lets one of them go wrong.

       faults WHAT AT CALLS LOG PROGRAM ARGUMENT...

   WHAT   count      nothing goes wrong
          kill       the program is killed before the call
          short      the call reads or writes half of what it was to
          ERRNO      the call is not made and returns this number
          put=PATH   before the call somebody else makes this file; all calls of renameat2 return EINVAL
          put=kill   the program is killed before the call; all calls of renameat2 return EINVAL
   AT     which call, from 1 on; N+ means all from there on
   CALLS  names with commas between them, or "all", "changing" (all but reads)
   LOG    each counted call: its name, and for those with a path the path; "-" for none

   A tracer and no preloaded library: what makes calls without the C library is seen, too. Calls count from the first one on that names a file
   outside of the system's own folders, so the start of the program is left alone; so is what it says (descriptors 0 to 2). Exit code: that of
   the program, 137 if it was killed, 125 if tracing is not possible here. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
#include <elf.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "only for x86-64 and AArch64"
#endif

/* `path` is which argument is the path, `descriptor` which is a descriptor that may be 0 to 2, `length` which is a length; -1 for none. */
struct call { const char *name; long number; int path, descriptor, length, reads; };

static const struct call CALLS[] = {
#ifdef SYS_open
    {"open", SYS_open, 0, -1, -1, 0},
    {"creat", SYS_creat, 0, -1, -1, 0},
    {"mkdir", SYS_mkdir, 0, -1, -1, 0},
    {"rename", SYS_rename, 0, -1, -1, 0},
    {"renameat", SYS_renameat, 1, -1, -1, 0},
    {"unlink", SYS_unlink, 0, -1, -1, 0},
    {"rmdir", SYS_rmdir, 0, -1, -1, 0},
    {"link", SYS_link, 0, -1, -1, 0},
    {"symlink", SYS_symlink, 1, -1, -1, 0},
#elif defined(SYS_renameat)
    {"renameat", SYS_renameat, 1, -1, -1, 0},
#endif
    {"openat", SYS_openat, 1, -1, -1, 0},
#ifdef SYS_openat2
    {"openat2", SYS_openat2, 1, -1, -1, 0},
#endif
    {"mkdirat", SYS_mkdirat, 1, -1, -1, 0},
    {"renameat2", SYS_renameat2, 1, -1, -1, 0},
    {"unlinkat", SYS_unlinkat, 1, -1, -1, 0},
    {"linkat", SYS_linkat, 1, -1, -1, 0},
    {"symlinkat", SYS_symlinkat, 2, -1, -1, 0},
    {"write", SYS_write, -1, 0, 2, 0},
    {"writev", SYS_writev, -1, 0, -1, 0},
    {"pwrite64", SYS_pwrite64, -1, 0, 2, 0},
    {"pwritev", SYS_pwritev, -1, 0, -1, 0},
    {"pwritev2", SYS_pwritev2, -1, 0, -1, 0},
    {"ftruncate", SYS_ftruncate, -1, 0, -1, 0},
    {"fallocate", SYS_fallocate, -1, 0, -1, 0},
    {"copy_file_range", SYS_copy_file_range, -1, 2, 4, 0},
    {"sendfile", SYS_sendfile, -1, 0, 3, 0},
    {"fsync", SYS_fsync, -1, 0, -1, 0},
    {"fdatasync", SYS_fdatasync, -1, 0, -1, 0},
    {"sync_file_range", SYS_sync_file_range, -1, 0, -1, 0},
    {"flock", SYS_flock, -1, 0, -1, 0},
    {"read", SYS_read, -1, 0, 2, 1},
    {"readv", SYS_readv, -1, 0, -1, 1},
    {"pread64", SYS_pread64, -1, 0, 2, 1},
    {"preadv", SYS_preadv, -1, 0, -1, 1},
    {"preadv2", SYS_preadv2, -1, 0, -1, 1},
    {"getdents64", SYS_getdents64, -1, 0, -1, 1},
};
enum { COUNT = sizeof CALLS / sizeof *CALLS };

/* The folders of the system: the loader, the C library and the number of cores are none of our business. */
static const char *const SYSTEM[] = {"/proc", "/sys", "/etc", "/lib", "/usr"};

static _Noreturn void impossible(const char *what)
{
    fprintf(stderr, "faults: %s: %s\n", what, strerror(errno));
    exit(125);
}

static void trace_these_calls(void)
{
    struct sock_filter filter[COUNT * 2 + 5];
    int at = 0;
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int call = 0; call < COUNT; call++) {
        filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)CALLS[call].number, 0, 1);
        filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    }
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)at, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        impossible("seccomp");
}

static void text_of(pid_t thread, unsigned long address, char *into, size_t room)
{
    size_t length = 0;
    while (length + 1 < room) {
        /* Byte by byte up to the end of a page would do; eight at a time are faster. */
        errno = 0;
        long word = ptrace(PTRACE_PEEKDATA, thread, address + length, 0);
        if (errno) break;
        for (size_t byte = 0; byte < sizeof word && length + 1 < room; byte++) {
            if (!(into[length] = ((char *)&word)[byte])) return;
            length++;
        }
    }
    into[length] = 0;
}

/* The call is not made, and returns this instead. */
static void refuse(pid_t thread, long result)
{
#if defined(__x86_64__)
    struct user_regs_struct registers;
    ptrace(PTRACE_GETREGS, thread, 0, &registers);
    registers.orig_rax = (unsigned long)-1;
    registers.rax = (unsigned long)result;
    ptrace(PTRACE_SETREGS, thread, 0, &registers);
#else
    struct user_pt_regs registers;
    struct iovec all = {&registers, sizeof registers};
    ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &all);
    registers.regs[0] = (unsigned long)result;
    ptrace(PTRACE_SETREGSET, thread, NT_PRSTATUS, &all);
    int none = -1;
    struct iovec number = {&none, sizeof none};
    ptrace(PTRACE_SETREGSET, thread, NT_ARM_SYSTEM_CALL, &number);
#endif
}

/* Somebody else makes a file that is not there. */
static void put(const char *path)
{
    FILE *file = fopen(path, "wx");
    if (!file) impossible(path);
    fputs("precious", file);
    fclose(file);
}

/* The call gets another length. */
static void shorten(pid_t thread, int argument, unsigned long length)
{
#if defined(__x86_64__)
    struct user_regs_struct registers;
    ptrace(PTRACE_GETREGS, thread, 0, &registers);
    unsigned long long *places[] = {&registers.rdi, &registers.rsi, &registers.rdx, &registers.r10, &registers.r8};
    *places[argument] = length;
    ptrace(PTRACE_SETREGS, thread, 0, &registers);
#else
    struct user_pt_regs registers;
    struct iovec all = {&registers, sizeof registers};
    ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &all);
    registers.regs[argument] = length;
    ptrace(PTRACE_SETREGSET, thread, NT_PRSTATUS, &all);
#endif
}

static int is_among(const char *name, const char *names)
{
    size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)); at += length)
        if ((at == names || at[-1] == ',') && (!at[length] || at[length] == ',')) return 1;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: faults WHAT AT CALLS LOG PROGRAM ARGUMENT...\n");
        return 125;
    }
    const char *what = argv[1], *calls = argv[3];
    char *rest;
    long first = strtol(argv[2], &rest, 10), number = 0;
    int onwards = *rest == '+', counting = 0;
    FILE *log = strcmp(argv[4], "-") ? fopen(argv[4], "w") : NULL;
    if (!log && strcmp(argv[4], "-")) impossible("log");
    pid_t program = fork();
    if (program < 0) impossible("fork");
    if (!program) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0)) impossible("ptrace");
        raise(SIGSTOP);
        trace_these_calls();
        execv(argv[5], argv + 5);
        impossible(argv[5]);
    }
    int status, code = 125;
    if (waitpid(program, &status, 0) != program || !WIFSTOPPED(status)) impossible("wait");
    long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, program, 0, options)) impossible("ptrace");
    ptrace(PTRACE_CONT, program, 0, 0);
    for (;;) {
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0) break;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (thread == program) code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            continue;
        }
        int signal = WSTOPSIG(status), event = status >> 16;
        if (event || signal == SIGSTOP || signal == SIGTRAP) signal = 0;
        if (event != PTRACE_EVENT_SECCOMP) {
            ptrace(PTRACE_CONT, thread, 0, signal);
            continue;
        }
        struct __ptrace_syscall_info info;
        if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0) impossible("ptrace");
        const struct call *call = CALLS;
        while (call < CALLS + COUNT && call->number != (long)info.seccomp.nr) call++;
        if (call < CALLS + COUNT) {
            char path[4097] = "";
            int ours = 1;
            if (call->path >= 0) {
                text_of(thread, info.seccomp.args[call->path], path, sizeof path);
                for (size_t at = 0; at < sizeof SYSTEM / sizeof *SYSTEM; at++)
                    if (!strncmp(path, SYSTEM[at], strlen(SYSTEM[at]))) ours = 0;
                counting |= ours;
            }
            if (call->descriptor >= 0 && info.seccomp.args[call->descriptor] < 3) ours = 0;
            int named = !strcmp(calls, "all") || (!strcmp(calls, "changing") && !call->reads) || is_among(call->name, calls);
            if (!strncmp(what, "put=", 4) && call->number == SYS_renameat2) refuse(thread, -EINVAL);
            if (counting && ours && named) {
                number++;
                /* Where a path counts from: the working directory, or an open one. */
                int here = call->path < 1 || (int)info.seccomp.args[call->path - 1] == -100;
                if (log) fprintf(log, "%s %s %s\n", call->name, call->path < 0 ? "-" : here ? "here" : "inside", path);
                if (number == first || (onwards && number > first)) {
                    if (!strcmp(what, "kill") || !strcmp(what, "put=kill")) {
                        kill(program, SIGKILL);
                    } else if (!strcmp(what, "short")) {
                        if (call->length >= 0 && info.seccomp.args[call->length] > 1)
                            shorten(thread, call->length, info.seccomp.args[call->length] / 2);
                    } else if (!strncmp(what, "put=", 4)) {
                        put(what + 4);
                    } else if (strcmp(what, "count")) {
                        refuse(thread, -atol(what));
                    }
                }
            }
        }
        ptrace(PTRACE_CONT, thread, 0, 0);
    }
    if (log) fclose(log);
    return code;
}
