// Runs a program, and another one, by each function of the C library that does so.
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { FUNCTIONS = 9 };

static void execute(int function, const char *path, char **arguments) {
    switch (function) {
    case 0:
        execl(path, "program", "again", "1", (char *)NULL);
        break;
    case 1:
        execv(path, arguments);
        break;
    case 2:
        execle(path, "program", "again", "2", "3", "4", "5", "6", (char *)NULL, environ);
        break;
    case 3:
        execve(path, arguments, environ);
        break;
    case 4:
        execlp("there-is-no-such-program", "program", (char *)NULL);
        execlp(path, "program", "again", "4", (char *)NULL);
        break;
    case 5:
        execvp(path, arguments);
        break;
    case 6:
        execvpe(path, arguments, environ);
    }
    _exit(99);
}

int main(int number, char **programs) {
    char *arguments[] = {"program", "again", "5", NULL};
    for (int program = 1; program < number; program++) {
        for (int function = 0; function < FUNCTIONS; function++) {
            pid_t child;
            int status, error = 0;
            fflush(stdout);
            if (function == 7)
                error = posix_spawn(&child, programs[program], NULL, NULL, arguments, environ);
            else if (function == 8)
                error = posix_spawnp(&child, programs[program], NULL, NULL, arguments, environ);
            else if ((child = function % 2 ? vfork() : fork()) == 0)
                execute(function, programs[program], arguments);
            if (error)
                printf("%d fails\n", function);
            else if (waitpid(child, &status, 0) == child)
                printf("%d ends with %d\n", function, WEXITSTATUS(status));
        }
    }
    return 0;
}
