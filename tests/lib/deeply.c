/* Loads a library, itself, that is bound deeply: what it frees was allocated here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef LIBRARY
void take(char *object);
void take(char *object) {
    printf("%s\n", object);
    free(object);
    free(malloc(100));
}
#else
int main(void) {
    void *library = dlopen("libdeeply.so", RTLD_NOW | RTLD_DEEPBIND);
    if (library == NULL) {
        puts(dlerror());
        return 1;
    }
    void (*take)(char *) = (void (*)(char *))dlsym(library, "take");
    char *object = malloc(1 << 20);
    for (int round = 0; round < 3; round++) {
        memset(object, 'a' + round, 1 << 20);
        object[10] = 0;
        take(object);
        object = malloc(1 << 20);
    }
    free(object);
    puts(dlopen("libnone.so", RTLD_NOW) ? "?" : "no such library");
    return 0;
}
#endif
