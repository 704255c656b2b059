/* A stand-in for libhiprtc.so: the calls that hipwright makes, with hipRTC's ABI. It compiles nothing: a source that
 * holds "#error" or "#pragma hipRTC refuses this" fails with a log, one that holds "STUB_RESULT n" returns hiprtcResult
 * n, any other "compiles" to the file CODE_FILE (a real code object that the test built). The log of a success tells
 * the options and the headers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct program { char *source, log[8192]; long code_size; char *code; };

int hiprtcVersion(int *major, int *minor) { *major = 9; *minor = 1; return 0; }

int hiprtcCreateProgram(struct program **out, const char *source, const char *name, int headers, const char **texts,
                        const char **names) {
    if (!source || !name) return 3;
    struct program *made = calloc(1, sizeof *made);
    made->source = strdup(source);
    for (int i = 0; i < headers; i++) {
        if (!texts[i][0]) return 3; /* hipRTC refuses an empty header */
        sprintf(made->log + strlen(made->log), "header %s\n", names[i]);
    }
    *out = made;
    return 0;
}

int hiprtcCompileProgram(struct program *p, int count, const char **options) {
    const char *forced = strstr(p->source, "STUB_RESULT ");
    if (strstr(p->source, "STUB_CRASH")) abort();
    if (forced) return atoi(forced + strlen("STUB_RESULT "));
    if (strstr(p->source, "#error")) {
        strcpy(p->log, "/tmp/comgr-1234/input/kernel.hip:2:2: error: no\n1 error generated.\n");
        return 6;
    }
    if (strstr(p->source, "#pragma hipRTC refuses this")) {
        strcpy(p->log, "/tmp/comgr-1234/input/kernel.hip:4:7: error: no such name\n1 error generated.\n");
        return 6;
    }
    for (int i = 0; i < count; i++) sprintf(p->log + strlen(p->log), "option %s\n", options[i]);
    FILE *file = fopen(CODE_FILE, "rb");
    if (!file) return 11;
    fseek(file, 0, SEEK_END);
    p->code_size = ftell(file);
    rewind(file);
    p->code = malloc(p->code_size);
    if (fread(p->code, 1, p->code_size, file) != (size_t)p->code_size) return 11;
    fclose(file);
    return 0;
}
int hiprtcGetProgramLogSize(struct program *p, size_t *size) { *size = strlen(p->log) + 1; return 0; }
int hiprtcGetProgramLog(struct program *p, char *log) { strcpy(log, p->log); return 0; }
int hiprtcGetCodeSize(struct program *p, size_t *size) { *size = p->code_size; return 0; }
int hiprtcGetCode(struct program *p, char *code) { memcpy(code, p->code, p->code_size); return 0; }
int hiprtcDestroyProgram(struct program **p) {
    free((*p)->source); free((*p)->code); free(*p);
    *p = NULL;
    return 0;
}
